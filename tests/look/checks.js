// What can be wrong with a page that is shown: content that is cut, pictures that are not there, text that is too pale.

const LEAST_CONTRAST = 4.5; // WCAG 2, level AA

function named(element) {
  const text = (element.textContent || element.getAttribute("src") || "").trim().replace(/\s+/g, " ");
  return `<${element.localName} class="${element.getAttribute("class") || ""}"> ${text.slice(0, 40)}`;
}

// ------------------------------------------------------------------------------------------------ what is cut

// The border that hides what sticks out of it, or null if a reader can scroll there.
function rightEdge(element, view) {
  for (let box = element.parentElement; box; box = box.parentElement) {
    const overflow = view.getComputedStyle(box).overflowX;
    if (["auto", "scroll"].includes(overflow) && box !== view.document.documentElement) return null;
    if (["hidden", "clip"].includes(overflow)) return box.getBoundingClientRect().right;
  }
  return view.document.documentElement.clientWidth;
}

export function findCutContent(view) {
  const page = view.document.documentElement;
  const found = page.scrollWidth > page.clientWidth ? [`the page is ${page.scrollWidth} px wide`] : [];
  for (const element of view.document.querySelectorAll("article *")) {
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || element.closest("svg, .md-visually-hidden")) continue;
    const edge = rightEdge(element, view);
    if (edge !== null && box.right > edge + 1) found.push(`cut by ${Math.round(box.right - edge)} px: ${named(element)}`);
  }
  return found;
}

// ------------------------------------------------------------------------------------------------ pictures

export function findUnseenPictures(view) {
  const found = [];
  for (const picture of view.document.querySelectorAll("article img, article div.mermaid, article > svg")) {
    const box = picture.getBoundingClientRect();
    if (box.width < 100 || box.height < 50) found.push(`shown with ${box.width} x ${box.height} px: ${named(picture)}`);
    if (picture.localName === "img" && !picture.naturalWidth) found.push(`not loaded: ${named(picture)}`);
    if (picture.localName === "img" && !picture.alt) found.push(`without a text alternative: ${named(picture)}`);
  }
  for (const text of view.document.querySelectorAll("article :is(pre, code).mermaid")) {
    found.push(`a diagram is not drawn: ${named(text)}`);
  }
  return found;
}

// ------------------------------------------------------------------------------------------------ contrast

const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const parsed = new Map();

// Red, green, blue and opacity of any colour that a style can have.
function parse(colour) {
  if (!parsed.has(colour)) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, opacity] = canvas.getImageData(0, 0, 1, 1).data;
    parsed.set(colour, [red, green, blue, opacity / 255]);
  }
  return parsed.get(colour);
}

function over(front, back) {
  return [0, 1, 2].map((at) => front[at] * front[3] + back[at] * (1 - front[3]));
}

function background(element, view) {
  const layers = [];
  for (let box = element; box; box = box.parentElement) {
    const layer = parse(view.getComputedStyle(box).backgroundColor);
    if (layer[3]) layers.push(layer);
    if (layer[3] === 1) break;
  }
  return layers.reverse().reduce((back, front) => over(front, back), [255, 255, 255]);
}

function luminance(colour) {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export function contrast(one, other) {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

function opacity(element, view) {
  let all = 1;
  for (let box = element; box; box = box.parentElement) all *= view.getComputedStyle(box).opacity;
  return all;
}

export function findPoorContrast(view) {
  const found = new Map();
  const texts = view.document.createTreeWalker(view.document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest("script, style, noscript, svg, .headerlink, .md-visually-hidden")) continue;
    const back = background(element, view);
    const colour = parse(view.getComputedStyle(element).color);
    const ratio = contrast(over([...colour.slice(0, 3), colour[3] * opacity(element, view)], back), back);
    const kind = `${colour} on ${back.map(Math.round)}`;
    if (ratio < LEAST_CONTRAST && !found.has(kind)) {
      found.set(kind, `contrast ${ratio.toFixed(2)} (${kind}): ${named(element)}`);
    }
  }
  return [...found.values()];
}
