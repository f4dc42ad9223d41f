# Rows on their way to the command: in a folder and files that this user alone can read, deleted when the call ends, also
# by an error or an interruption.

with_private_folder <- function(use) {
  before <- Sys.umask("077")
  folder <- tryCatch({
    folder <- tempfile("tulle-")
    if (!dir.create(folder, mode = "0700")) tulle_stop(paste0("no folder can be made in ", tempdir()))
    folder
  }, finally = Sys.umask(before))
  on.exit({
    unlink(folder, recursive = TRUE)
    if (file.exists(folder)) tulle_warn(paste0(folder, " could not be deleted and may hold private rows; delete it"))
  })
  use(normalizePath(folder))
}

# Writes lines as UTF-8, readable by this user alone from the first byte on.
write_private <- function(lines, path) {
  before <- Sys.umask("077")
  connection <- tryCatch(file(path, "wb"), finally = Sys.umask(before))
  on.exit(close(connection))
  writeLines(lines, connection, useBytes = TRUE)
}

# Columns of a data frame as CSV. Each cell becomes text by itself: no cell has an effect on how another is written.
write_rows <- function(data, settings, path) {
  header <- quote_cells(enc2utf8(names(settings)))
  cells <- lapply(names(settings), function(name) quote_cells(cell_text(data[[name]], settings[[name]], name)))
  write_private(c(paste(header, collapse = ","), do.call(paste, c(cells, sep = ","))), path)
}

quote_cells <- function(text) paste0("\"", gsub("\"", "\"\"", text, fixed = TRUE), "\"")

cell_text <- function(column, settings, name) {
  kind <- if (is.list(settings)) names(settings) else as.character(settings)
  if (inherits(column, c("Date", "POSIXct", "POSIXlt"))) {
    # A declared format is for text; dates of R are written in it, so that they can be read.
    form <- if (is.list(settings) && "date" %in% kind) settings$format
    if (inherits(column, "Date")) {
      text <- format(column, if (is.null(form)) "%Y-%m-%d" else form)
    } else {
      text <- format(as.POSIXct(column), if (is.null(form)) "%Y-%m-%dT%H:%M:%SZ" else form, tz = "UTC")
    }
  } else if (is.factor(column)) {
    text <- as.character(column)
  } else if (inherits(column, "integer64") && isNamespaceLoaded("bit64")) {
    text <- as.character(column)
  } else if (!is.null(dim(column)) || !typeof(column) %in% plain_types || length(setdiff(oldClass(column), plain_classes))) {
    tulle_stop(paste0(
      "the column '", name, "' is of class ", paste(class(column), collapse = "/"),
      "; columns must be numbers, text, factors, logical values, dates or times"
    ))
  } else if (is.logical(column)) {
    # As numbers TRUE and FALSE are 1 and 0, as in arithmetic of R.
    text <- if (any(c("range", "number") %in% kind)) as.character(as.integer(column)) else as.character(column)
  } else {
    column <- unclass(column)
    text <- if (is.numeric(column)) number_text(column) else as.character(column)
  }
  raw <- Encoding(text) == "bytes"
  text[raw] <- iconv(text[raw], "ASCII", "UTF-8", sub = "byte")
  text <- enc2utf8(text)
  wrong <- !is.na(text) & !validUTF8(text)
  text[wrong] <- iconv(text[wrong], "UTF-8", "UTF-8", sub = "byte")
  text[is.na(text)] <- ""
  text
}

plain_types <- c("character", "double", "integer", "logical")
plain_classes <- c("AsIs", "haven_labelled", "vctrs_vctr", "double", "integer", "character")

# The shortest of 15 and 17 digits that give the same number again.
number_text <- function(values) {
  values <- as.vector(values)
  if (is.integer(values)) return(as.character(values))
  text <- sprintf("%.15g", values)
  longer <- !is.na(values) & is.finite(values) & suppressWarnings(as.numeric(text)) != values
  text[longer] <- sprintf("%.17g", values[longer])
  text[is.na(values)] <- NA
  text
}
