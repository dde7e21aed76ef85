// Sends the code of a sign-in link, and takes it out of the address so that it stays in no history.

history.replaceState(null, "", location.pathname);
document.getElementById("link-form").requestSubmit();
