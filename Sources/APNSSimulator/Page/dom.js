// Builds and updates the document. Texts become text nodes, never HTML.

const SVG = "http://www.w3.org/2000/svg";
const asProperty = new Set(["value", "checked", "disabled", "selected", "open"]);

/** Describes an element. `props.key` keeps it through updates, `props.on` has listeners, `props.vars` CSS variables. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: flat(children, []) };
}

function flat(children, list) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) flat(child, list);
    else list.push(typeof child === "object" ? child : { text: String(child) });
  }
  return list;
}

/** Makes the children of `parent` equal to `children`, and keeps elements, their focus and their typed text. */
export function patch(parent, ...children) {
  reconcile(parent, flat(children, []), parent.namespaceURI === SVG);
  // New elements are ready once the whole tree is in its place, because `ready` may update the tree again.
  const ready = made;
  made = [];
  for (const [element, node] of ready) node.props.ready(element);
}

/** New elements of this update whose descriptions have `ready`. */
let made = [];

function reconcile(parent, wanted, inSVG) {
  const former = parent.sluiceNodes ?? [];
  const keyed = new Map();
  const plain = [];
  for (const entry of former) {
    const key = entry.node.props?.key;
    if (key === undefined) plain.push(entry);
    else keyed.set(key, entry);
  }
  const now = [];
  let next = 0;
  const kept = new Set();
  for (const node of wanted) {
    const key = node.props?.key;
    let entry;
    if (key !== undefined) {
      entry = keyed.get(key);
      if (entry && (entry.node.tag !== node.tag || kept.has(entry))) entry = undefined;
    } else {
      let index = next;
      while (index < plain.length && plain[index].node.tag !== node.tag) index += 1;
      if (index < plain.length) {
        entry = plain[index];
        next = index + 1;
      }
    }
    if (entry) kept.add(entry);
    now.push([node, entry]);
  }
  for (const entry of former) if (!kept.has(entry)) entry.element.remove();
  let cursor = parent.firstChild;
  const list = [];
  for (const [node, entry] of now) {
    let element;
    if (entry) {
      element = entry.element;
      update(element, entry.node, node, inSVG);
    } else {
      element = create(node, inSVG);
    }
    if (element === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(element, cursor);
    if (!entry && node.props?.ready) made.push([element, node]);
    list.push({ node, element });
  }
  parent.sluiceNodes = list;
}

function create(node, inSVG) {
  if (node.tag === undefined) return document.createTextNode(node.text);
  const isSVG = inSVG || node.tag === "svg";
  const element = isSVG ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  reconcile(element, node.children, isSVG);
  setProps(element, {}, node.props);
  return element;
}

function update(element, former, node, inSVG) {
  if (node.tag === undefined) {
    if (former.text !== node.text) element.data = node.text;
    return;
  }
  reconcile(element, node.children, inSVG || node.tag === "svg");
  setProps(element, former.props, node.props);
}

function setProps(element, former, props) {
  for (const name in former) if (!(name in props)) setProp(element, name, former[name], null);
  for (const name in props) if (former[name] !== props[name]) setProp(element, name, former[name], props[name]);
}

function setProp(element, name, former, value) {
  if (name === "key" || name === "ready") return;
  if (name === "on") {
    // A single listener for each kind calls the newest function.
    element.sluiceHandlers = value ?? {};
    for (const kind in value) {
      element.sluiceKinds ??= new Set();
      if (element.sluiceKinds.has(kind)) continue;
      element.sluiceKinds.add(kind);
      element.addEventListener(kind, (event) => element.sluiceHandlers[kind]?.(event));
    }
  } else if (name === "vars") {
    for (const key in former ?? {}) if (!value || !(key in value)) element.style.removeProperty(key);
    for (const key in value ?? {}) element.style.setProperty(key, value[key]);
  } else if (asProperty.has(name)) {
    const wanted = value ?? (name === "value" ? "" : false);
    if (element[name] !== wanted) element[name] = wanted;
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : value);
  }
}

let announcer;
/** Reads a text to users of screen readers. */
export function announce(text) {
  announcer ??= document.getElementById("announcer");
  announcer.textContent = text;
}
