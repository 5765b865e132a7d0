"""Tools for anybody's files: look, advise, forecast, bisect."""
