// Opens the pages of a site in a frame, at two widths and in two schemes, and posts what is wrong with them.

import { findCutContent, findPoorContrast, findUnseenPictures } from "./checks.js";

const WIDTHS = [1280, 390];
const SCHEMES = ["default", "slate"];

function nextFrame(view) {
  return new Promise((done) => view.requestAnimationFrame(() => view.requestAnimationFrame(done)));
}

// Resolves after so many milliseconds at the latest: what did not come by then is a fault that is found.
const PATIENCE_MS = 30000;

// The theme draws each diagram and then replaces its text; an error in a diagram is an error of the page.
function drawn(document, faults) {
  const end = performance.now() + PATIENCE_MS;
  const texts = "article :is(pre, code).mermaid";
  const done = () => !document.querySelector(texts) || faults.length || performance.now() > end;
  return new Promise((resolve) => {
    const look = () => (done() ? resolve() : setTimeout(look, 20));
    look();
  });
}

async function open(page) {
  const frame = document.createElement("iframe");
  frame.style = `border: 0; height: 900px; width: ${WIDTHS[0]}px`;
  frame.src = `/${page}`;
  document.body.append(frame);
  await new Promise((loaded, failed) => {
    frame.addEventListener("load", loaded);
    setTimeout(() => failed(new Error(`${page} is not loaded`)), 2 * PATIENCE_MS);
  });
  return frame;
}

async function look(page) {
  const frame = await open(page);
  const view = frame.contentWindow;
  const { document } = view;
  const found = view.faultsOfThePage;
  await document.fonts.ready;
  await drawn(document, found);
  // Colours that fade from one scheme to the other would be measured on the way.
  document.head.insertAdjacentHTML("beforeend", "<style>*, ::before, ::after { transition: none !important }</style>");
  for (const width of WIDTHS) {
    frame.style.width = `${width}px`;
    await nextFrame(view);
    found.push(...findCutContent(view).map((fault) => `${width} px: ${fault}`));
    found.push(...findUnseenPictures(view).map((fault) => `${width} px: ${fault}`));
    for (const scheme of SCHEMES) {
      document.body.setAttribute("data-md-color-scheme", scheme);
      await nextFrame(view);
      found.push(...findPoorContrast(view).map((fault) => `${scheme}: ${fault}`));
    }
  }
  frame.remove();
  return [...new Set(found)];
}

const report = {};
try {
  for (const page of await (await fetch("/look/pages")).json()) {
    report[page] = await look(page);
  }
} catch (error) {
  report["look.js"] = [String(error.stack)];
}
await fetch("/look/report", { method: "POST", body: JSON.stringify(report) });
