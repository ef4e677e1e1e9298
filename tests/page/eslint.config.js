import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/node_modules/", "**/vendor/", "**/types/"] },
  js.configs.recommended,
  {
    files: ["services/gateway/page/app/*.js"],
    languageOptions: { globals: globals.browser },
    rules: {
      "no-unused-vars": ["error", { varsIgnorePattern: "^_", argsIgnorePattern: "^_" }],
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-restricted-properties": ["error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({ property, message: "what others named is text, never markup" })),
        { object: "document", property: "write", message: "what others named is text, never markup" }],
      "no-restricted-syntax": ["error",
        { selector: "Literal[value='dangerouslySetInnerHTML']", message: "what others named is text, never markup" },
        { selector: "TemplateElement[value.raw=/dangerouslySetInnerHTML|\\sstyle=\"/]", message: "no markup from text, and no style as text" }],
    },
  },
  { files: ["services/gateway/page/app/first.js"], languageOptions: { sourceType: "script" } },
];
