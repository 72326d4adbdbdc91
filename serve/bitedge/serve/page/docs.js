// The OpenAPI document as a page: every operation with its parameters, bodies and answers. Works without a network.
import { startTheme } from "./theme.js";

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function resolve(document_, schema) {
  return schema?.$ref ? schema.$ref.slice(2).split("/").reduce((value, key) => value[key], document_) : schema;
}

function facts(rows) {
  const list = element("dl", undefined, "facts");
  for (const [term, text] of rows) list.append(element("dt", term), element("dd", text));
  return list;
}

function bodies(document_, title, content) {
  const parts = Object.entries(content ?? {}).map(([type, { schema }]) => {
    const holder = element("div");
    holder.append(element("h3", `${title} ${type}`));
    const shown = resolve(document_, schema);
    if (shown?.format !== "binary") holder.append(element("pre", JSON.stringify(shown, null, 1)));
    return holder;
  });
  return parts;
}

function operation(document_, path, method, description) {
  const node = element("details", undefined, "operation");
  node.dataset.testid = `${method} ${path}`;
  const summary = element("summary");
  summary.append(element("span", method.toUpperCase(), "method"), element("code", path), document.createTextNode(` ${description.summary ?? ""}`));
  node.append(summary);
  if (description.description) node.append(element("p", description.description));
  const parameters = (description.parameters ?? []).map((p) => [`${p.name} (${p.in}${p.required ? ", required" : ""})`, p.description ?? p.schema?.description ?? ""]);
  if (parameters.length) node.append(element("h3", "Parameters"), facts(parameters));
  node.append(...bodies(document_, "Body", description.requestBody?.content));
  node.append(element("h3", "Answers"), facts(Object.entries(description.responses).map(([status, answer]) => [status, answer.description])));
  node.append(...bodies(document_, "200", description.responses["200"]?.content));
  return node;
}

async function load(key) {
  const answer = await fetch("openapi.json", { headers: key ? { "X-API-Key": key } : {} });
  document.getElementById("key-form").hidden = answer.status !== 401;
  const description = await answer.json();
  if (!answer.ok) {
    document.getElementById("about").textContent = description.error;
    document.body.dataset.state = "failed";
    return;
  }
  document.getElementById("about").textContent = `${description.info.title} ${description.info.version}. ${description.info.description}`;
  const nodes = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, value]) => operation(description, path, method, value)));
  document.getElementById("operations").replaceChildren(...nodes);
  document.body.dataset.state = "done";
}

startTheme(document.getElementById("theme"));
document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  load(document.getElementById("key").value.trim());
});
load("");
