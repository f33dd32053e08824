// Starts the page. What goes wrong before it runs is said here, because nothing else can say it.
import init from "./turnfast.js";

try {
  await init();
} catch (error) {
  console.error(error);
  const app = document.getElementById("app");
  const message = document.createElement("p");
  message.className = "splash";
  message.setAttribute("role", "alert");
  message.textContent =
    typeof WebAssembly === "object"
      ? "Turnfast could not be loaded. Check the connection and reload the page."
      : "Turnfast needs WebAssembly, and this browser does not have it or has switched it off.";
  app.replaceChildren(message);
}
