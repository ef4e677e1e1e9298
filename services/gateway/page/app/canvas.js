// A canvas that is as wide as its place, sharp on any display, and drawn again when something changes.
import { useEffect, useRef, useState } from "./lib.js";
import { colours } from "./settings.js";

/**
 * @param {(context: CanvasRenderingContext2D, width: number, height: number) => void} draw
 * @param {(width: number) => number} heightOf
 * @param {any[]} inputs What the drawing depends on.
 */
export function useCanvas(draw, heightOf, inputs) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const canvas = ref.current;
    if (!canvas?.parentElement) return undefined;
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    watch.observe(canvas.parentElement);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const canvas = ref.current;
    const context = canvas?.getContext("2d");
    if (!canvas || !context || !width) return undefined;
    const frame = requestAnimationFrame(() => {
      const height = heightOf(width);
      const ratio = devicePixelRatio || 1;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      draw(context, width, height);
    });
    return () => cancelAnimationFrame(frame);
  }, [width, colours.value, ...inputs]);
  return { ref, width };
}
