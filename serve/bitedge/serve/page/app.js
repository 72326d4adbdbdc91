// The page: take an image, ask the server, show the answer. State lives in the document; nothing is fetched elsewhere.
import { startTheme } from "./theme.js";

const byId = (id) => document.getElementById(id);
const TYPES = ["image/jpeg", "image/png", "image/webp", "image/bmp"];
const TOP_K = 5;

let models = [];
let current = null; // the image that is shown: { blob, name }
let turn = 0; // a newer request makes the answers of older ones worthless
let apiKey = "";
let stream = null;

function setState(state) {
  document.body.dataset.state = state;
}

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function milliseconds(value) {
  return `${value < 10 ? value.toFixed(2) : value.toFixed(0)} ms`;
}

async function request(path, options = {}) {
  const headers = { ...(options.headers || {}), ...(apiKey ? { "X-API-Key": apiKey } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  byId("key-form").hidden = answer.status !== 401;
  let message = `${answer.status} ${answer.statusText}`;
  try {
    message = (await answer.json()).error;
  } catch { /* not ours; the status says it */ }
  const retry = answer.headers.get("Retry-After");
  throw new Error(retry ? `${message} (try again in ${retry} s)` : message);
}

function showError(error) {
  byId("error").textContent = error.message;
  byId("error").hidden = false;
  byId("status").textContent = "That did not work.";
  clearResult();
  setState("error");
}

function clearResult() {
  byId("top").textContent = "";
  byId("bars").replaceChildren();
  byId("timing").hidden = true;
}

function chosen() {
  const [name, version] = byId("model").value.split("/");
  return { name, version, query: `model=${encodeURIComponent(name)}&version=${version}` };
}

function showFacts(list, rows) {
  list.replaceChildren(...rows.flatMap(([term, text, className]) => [element("dt", term, className), element("dd", text, "number")]));
}

function showCard() {
  const { name, version } = chosen();
  const card = models.find((model) => model.name === name && model.version === version);
  if (!card) return;
  const rows = [
    ["Name", `${card.name}, version ${card.version}`],
    ["State", card.reason ? `${card.state}: ${card.reason}` : card.state],
    ["Accuracy", card.accuracy == null ? "not recorded" : `${(100 * card.accuracy).toFixed(2)} %${card.dataset ? ` on ${card.dataset}` : ""}${card.measured_on ? ` (${card.measured_on})` : ""}`],
    ["Size", `${(card.size_bytes / 1024).toFixed(1)} KiB`],
    ["1-bit weights", card.one_bit_weights == null ? "unknown" : `${(100 * card.one_bit_weights).toFixed(1)} %`],
    ["Kernel", (card.kernels || []).join(", ") || "unknown"],
    ["Backend", card.backend],
    ["Input", (card.input_shape || []).join(" × ")],
    ["Classes", String(card.classes)],
    ["Work", card.macs == null ? "unknown" : `${(card.macs / 1e6).toFixed(1)} million products an image`],
    ["SHA-256", (card.sha256 || "").slice(0, 16)],
  ];
  showFacts(byId("card"), rows);
}

async function loadModels() {
  const kept = byId("model").value;
  models = (await (await request("v1/models")).json()).models.filter((model) => model.state === "READY");
  byId("model").replaceChildren(...models.map((model) => {
    const option = element("option", models.filter((m) => m.name === model.name).length > 1 ? `${model.name} (version ${model.version})` : model.name);
    option.value = `${model.name}/${model.version}`;
    return option;
  }));
  const first = [...models].reverse().find((model) => model.default);
  const wanted = kept || (first ? `${first.name}/${first.version}` : "");
  if (wanted) byId("model").value = wanted;
  showCard();
}

function showCommand() {
  const type = current.blob.type || "image/png";
  const secret = apiKey ? " \\\n  -H \"X-API-Key: $BITEDGE_KEY\"" : "";
  byId("curl").textContent =
    `curl --data-binary @'${current.name.replaceAll("'", "")}' -H 'Content-Type: ${type}'${secret} \\\n  '${new URL("v1/classify", location)}?${chosen().query}&top_k=${TOP_K}'`;
  byId("command").hidden = false;
}

function showAnswer(answer) {
  const [best] = answer.predictions;
  byId("top").textContent = best.label;
  byId("bars").replaceChildren(...answer.predictions.map((row) => {
    const percent = 100 * row.score;
    const item = element("li");
    const track = element("div", undefined, "track");
    const fill = element("div", undefined, "fill");
    fill.style.width = `${percent}%`;
    track.append(fill);
    track.setAttribute("aria-hidden", "true");
    item.append(element("span", row.label), element("span", `${percent.toFixed(1)} %`, "number"), track);
    return item;
  }));
  showTiming(answer.timing);
  byId("status").textContent =
    `${best.label}, ${(100 * best.score).toFixed(1)} %, by ${answer.model} version ${answer.version} in ${milliseconds(answer.timing.total_ms)}.`;
}

function showTiming(timing) {
  const other = Math.max(0, timing.total_ms - timing.decode_ms - timing.queue_ms - timing.inference_ms);
  const parts = [
    ["Decode", timing.decode_ms, "decode"],
    ["Queue", timing.queue_ms, "queue"],
    ["Inference", timing.inference_ms, "inference"],
    ["HTTP", other, "other"],
  ];
  byId("split").replaceChildren(...parts.map(([, value, className]) => {
    const part = element("div", undefined, className);
    part.style.width = `${(100 * value) / timing.total_ms}%`;
    return part;
  }));
  const rows = parts.map(([name, value, className]) => [name, milliseconds(value), className]);
  showFacts(byId("timing-list"), [...rows, ["Total in the server", milliseconds(timing.total_ms)], ["Batch", `${timing.batch_size} image${timing.batch_size > 1 ? "s" : ""}`]]);
  byId("timing").hidden = false;
}

function showPicture(id, blob) {
  const image = byId(id);
  URL.revokeObjectURL(image.src);
  image.onload = () => { byId(`${id}-size`).textContent = `${image.naturalWidth} × ${image.naturalHeight}`; };
  image.onerror = () => { image.hidden = true; };
  image.src = URL.createObjectURL(blob);
  image.hidden = false;
}

async function classify() {
  if (!current) return;
  const mine = ++turn;
  const { query } = chosen();
  const options = () => ({ method: "POST", body: current.blob, headers: { "Content-Type": TYPES.includes(current.blob.type) ? current.blob.type : "application/octet-stream" } });
  setState("busy");
  byId("error").hidden = true;
  byId("status").textContent = "Asking the network…";
  showCommand();
  try {
    const answer = await (await request(`v1/classify?${query}&top_k=${TOP_K}`, options())).json();
    const seen = await (await request(`v1/preview?${query}`, options())).blob();
    if (mine !== turn) return;
    showAnswer(answer);
    showPicture("seen", seen);
    setState("done");
  } catch (error) {
    if (mine !== turn) return;
    byId("seen").hidden = true;
    showError(error);
  }
}

function take(blob, name) {
  current = { blob, name: name || "image.png" };
  showPicture("original", blob);
  return models.length ? classify() : start();
}

function takeFirst(files) {
  const [file] = files;
  if (file) take(file, file.name);
  else showError(new Error("That was no file. Drop, choose or paste an image."));
}

async function startCamera() {
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    showError(new Error(`The camera cannot be used: ${error.message}`));
    return;
  }
  byId("video").srcObject = stream;
  byId("viewfinder").hidden = false;
  byId("shoot").focus();
}

function stopCamera() {
  for (const track of stream?.getTracks() ?? []) track.stop();
  byId("viewfinder").hidden = true;
  byId("camera").focus();
}

function shoot() {
  const video = byId("video");
  const canvas = element("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  canvas.getContext("2d").drawImage(video, 0, 0);
  canvas.toBlob((blob) => { stopCamera(); take(blob, "camera.png"); }, "image/png");
}

async function copyCommand() {
  try {
    await navigator.clipboard.writeText(byId("curl").textContent);
    byId("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(byId("curl"));
    byId("copy").textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { byId("copy").textContent = "Copy"; }, 2000);
}

function listen() {
  const drop = byId("drop");
  for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); takeFirst(event.dataTransfer.files); });
  byId("file").addEventListener("change", (event) => { if (event.target.files.length) takeFirst(event.target.files); event.target.value = ""; });
  document.addEventListener("paste", (event) => { if (event.clipboardData.files.length) takeFirst(event.clipboardData.files); });
  byId("model").addEventListener("change", () => { showCard(); classify(); });
  byId("copy").addEventListener("click", copyCommand);
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    apiKey = byId("key").value.trim();
    byId("key-form").hidden = true;
    start();
  });
  if (window.isSecureContext && navigator.mediaDevices?.getUserMedia) {
    byId("camera").hidden = false;
    byId("camera").addEventListener("click", startCamera);
    byId("shoot").addEventListener("click", shoot);
    byId("stop").addEventListener("click", stopCamera);
  }
}

async function start() {
  try {
    await loadModels();
    byId("error").hidden = true;
    if (!models.length) throw new Error("No model can be served yet.");
    if (current) await classify();
    else { setState("idle"); byId("status").textContent = "Waiting for an image."; }
  } catch (error) {
    showError(error);
  }
}

startTheme(byId("theme"));
listen();
start();
