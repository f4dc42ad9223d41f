"""A declared schema: raw tables of words, dates, numbers and text as sparse rows, learning nothing from them."""
