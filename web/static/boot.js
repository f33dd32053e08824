// Starts the page, and says what goes wrong where the page itself cannot.
import init from "./turnfast.js";

function say(words, button) {
  const page = document.createElement("main");
  page.className = "splash";
  const message = document.createElement("div");
  message.setAttribute("role", "alert");
  const text = document.createElement("h1");
  text.textContent = words;
  message.append(text);
  page.append(message);
  if (button) {
    const reload = document.createElement("button");
    reload.className = "primary";
    reload.textContent = button;
    reload.addEventListener("click", () => location.reload());
    page.append(reload);
  }
  document.getElementById("app").replaceChildren(page);
}

// A panic ends the page's program for good, and what it showed would stay and do nothing.
let broken = false;
function fail() {
  if (broken) return;
  broken = true;
  say("This page has stopped working. Replies and all that was recorded are safe at the server.", "Reload the page");
}
addEventListener("turnfast-panic", fail);
addEventListener("error", (event) => {
  if (event.error?.name === "RuntimeError") fail();
});
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "RuntimeError") fail();
});

try {
  await init();
} catch (error) {
  console.error(error);
  if (!broken) {
    say(
      typeof WebAssembly === "object"
        ? "Turnfast could not be loaded. Check the connection and reload the page."
        : "Turnfast needs WebAssembly, and this browser does not have it or has switched it off.",
    );
  }
}
