// The tree of queues.
/** Queues of a tree, parents first. @param {any} root @returns {any[]} */
export function walked(root) {
  return [root, ...root.children.flatMap(walked)];
}
