"""Templates of texts for the pages of advice and bisects, in addition to `sbench.pages.words` for all pages."""

from sbench.pages.words import make_fill

# Advice for a set of copies, by the kind of its layout.
REPACKING = {
    "paged": "repack the files with pages",
    "chunks": "repack the files with other chunks",
    "large": "merge all files into one, with pages",
}
TEMPLATES = {
    # Advice.
    "no advice": "none, since the files as they are could not be measured; the report lists the reasons",
    "undecided": "undecided, leave the files as they are until it is",
    "no repack": "no, leave the files as they are",
    "leave": "leave the files as they are",
    "recommend": "{files}, and read them with {way}",
    "ros3": "needs an h5py with ROS3: conda-forge's (not tested here), or pip install h5py-s3 instead of h5py",
    # Gains.
    "none faster": "no way was shown to be faster than the files as they are, read with {base}",
    "none without copy": "no way without a copy was shown to be faster than {base}, and {layout} with {way} gains too "
    "little for one ({gain}×)",
    "unseen": "; gains below {times} times could not be detected",
    "these alone": "of these files alone",
    "this file": "this file",
    "these files": "these {many} files",
    "gains alone": "of {files} alone {gains}×",
    "gains of rest": "of the {rest} of {files} by which it was not chosen {gains}×",
    "gains of each": "of each of {files} {gains}×",
    "as fast": "{bound}{times} [{ends}] times as fast as with {base}",
    "as fast as files": "{bound}{times} [{ends}] times as fast as the files as they are with {base}",
    "effort": "{after} s instead of {before} s per read",
    "effort and requests": "{effort}, {after:,.0f} requests instead of {before:,.0f}",
    "without copy": "without a copy",
    "for copy": "for a copy of {change:+.0f} % bytes that takes {seconds} s per GiB to make",
    # By forecast.
    "by forecast": "by forecast, not measured: {forecast}",
    "instead": " instead of {forecast} with {base}, {times} times as fast",
    "forecast": "{requests:,.0f} requests, {size} and {time}",
    # Notes.
    "files of client": "the first file {first} s, each further one {further} s",
    "files of clients": "the first file {first} instead of {first_before} s, each further one {further} instead of "
    "{further_before} s",
    "missed": "{layout} with {way} took {times} times its forecast{access}",
    "not decided": "not decided ({verdict}): {ways}",
    "uneven": "not advised, as other files may gain nothing: {layout} with {way}, {gains}×, on {gaining} of these "
    "{many} files more than 1×",
    "too long": "{way}: {forecast} by forecast, too long to be measured",
    # Ways considered.
    "place": "Place: {place}.",
    "copied": "{name}: {typed}; {original} became {copy} in {seconds} s",
    "left out": "Left out: {reason}",
    "table of ways": "Ways to read one object, by HDF5's reads of the first file and each driver's requests for them: "
    "a round trip for each request, and all bytes at the rate of one connection, without computing. Measured: medians.",
    # A bisect.
    "changed": "{package} {before} → {after}{skipped} changed {metric}: {times}{counts}.",
    "or skipped": " (or {releases}, not measured)",
    "unchanged": "{package} {before} and {after} take the same {metric}: {counts}; none between them was measured.",
    "where undecided": "Undecided: where {metric} changed between {package} {before} and {after}: {counts}{reason}.",
    "requests and bytes": "{requests} requests and {sizes} MiB",
    "nothing differs": "Nothing else differs between the libraries with {pair}.",
    "these differ": "Between the libraries with {pair} these differ, too: {differs}.",
    "skipped": "{release} could not be measured: {reason}",
    "other change": "There is another change between {before} and {after}.",
    "same again": "The same again: {command}",
    "both again": "Both releases once more: {command}",
    "archive and cite": "To archive and to cite it: {archive}, {cite}",
    "table of releases": "The {releases} of {of} that were measured, in their order: requests that the server saw and "
    "bytes that it offered, medians of their repeats.",
}
fill = make_fill(TEMPLATES)
