// Begins the page of two traces.

startTheme();
startSorting();
document.documentElement.dataset.ready = "yes";
