"""Text templates for the pages of advice and of bisections, in addition to those in `sbench.pages.words`."""

from sbench.pages.words import make_fill

# Recommended changes to the files, by layout.
REPACKING = {
    "paged": "repack the files with pages",
    "chunks": "repack the files with other chunks",
    "large": "merge all files into a single file with pages",
}
TEMPLATES = {
    # Advice.
    "no advice": "none, because the original files could not be measured; see the reasons in the report",
    "undecided": "undecided, leave the files as they are for now",
    "no repack": "no, leave the files as they are",
    "leave": "leave the files as they are",
    "recommend": "{files}, and read them with {way}",
    "ros3": "needs an h5py with ROS3: conda-forge's (not tested here), or pip install h5py-s3 instead of h5py",
    # Gains.
    "none faster": "no way was shown to be faster than reading the original files with {base}",
    "none without copy": "no way without a copy was shown to be faster than {base}; the gain of {layout} with {way} "
    "({gain}×) does not justify a copy",
    "unseen": "; this run cannot detect gains below {times}×",
    "these alone": "on these files only",
    "this file": "this file",
    "these files": "these {many} files",
    "gains alone": "{gains}× on {files} only",
    "gains of rest": "{gains}× on {rest} of {files}, which did not select this way",
    "gains of each": "{gains}× on each of {files}",
    "as fast": "{bound}{times} [{ends}] times as fast as with {base}",
    "as fast as files": "{bound}{times} [{ends}] times as fast as the original files with {base}",
    "effort": "{after} s instead of {before} s per read",
    "effort and requests": "{effort}, {after:,.0f} requests instead of {before:,.0f}",
    "without copy": "without a copy",
    "for copy": "for a copy ({change:+.0f} % bytes, {seconds} s per GiB to make)",
    # Forecasts.
    "by forecast": "by forecast, not measured: {forecast}",
    "instead": " instead of {forecast} with {base}, {times} times as fast",
    "forecast": "{requests:,.0f} requests, {size} and {time}",
    # Notes.
    "files of client": "the first file takes {first} s, each further file {further} s",
    "files of clients": "the first file takes {first} s instead of {first_before} s, each further file {further} s "
    "instead of {further_before} s",
    "missed": "{layout} with {way} took {times} times its forecast{access}",
    "not decided": "undecided ({verdict}): {ways}",
    "uneven": "not advised, because other files may gain nothing: {layout} with {way} is {gains}× as fast, above 1× on "
    "only {gaining} of these {many} files",
    "too long": "{way}: {forecast} by forecast, too long to measure",
    # Ways considered.
    "place": "Store: {place}.",
    "copied": "{name}: {typed}; {original} → {copy} in {seconds} s",
    "left out": "Left out: {reason}",
    "table of ways": "Ways to read an object. Forecast: HDF5's reads of the first file and the driver's requests for "
    "them, with a round trip per request and all bytes at the rate of a connection, without computing time. Measured "
    "values are medians.",
    # A bisect.
    "changed": "{package} {before} → {after}{skipped} changed {metric}: {times}{counts}.",
    "or skipped": " (or {releases}, not measured)",
    "unchanged": "{package} {before} and {after} agree in {metric}: {counts}; no release between them was measured.",
    "where undecided": "Undecided: no release between {package} {before} and {after} was shown to change {metric}: "
    "{counts}{reason}.",
    "requests and bytes": "{requests} requests and {sizes} MiB",
    "nothing differs": "Nothing else differs between the libraries with {pair}.",
    "these differ": "The libraries with {pair} also differ in: {differs}.",
    "skipped": "{release} could not be measured: {reason}",
    "other change": "Another change lies between {before} and {after}.",
    "same again": "To repeat the bisect: {command}",
    "both again": "To measure both releases again: {command}",
    "archive and cite": "To archive and cite the run: {archive}, {cite}",
    "table of releases": "{releases} of {of}, in order, with the requests and offered bytes that the server counted "
    "(medians of the repeats).",
}
fill = make_fill(TEMPLATES)
