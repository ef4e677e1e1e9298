// The libraries, under the names by which the page uses them.
import { Component, Fragment, h, render } from "../vendor/preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
import { batch, computed, effect, signal } from "../vendor/preact-signals.js";
import htm from "../vendor/htm.js";

/** A template of elements. What is put into it is text or elements, never markup. */
export const html = htm.bind(h);
export {
  Component, Fragment, batch, computed, effect, render, signal,
  useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
};
