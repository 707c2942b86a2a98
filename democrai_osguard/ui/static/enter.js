// Keeps the visit's token where only pages of this origin, port included, can read it.
const token = document.querySelector("meta[name=visit-token]").content;
localStorage.setItem("osguard-token", token);
location.replace("/");
