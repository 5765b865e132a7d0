"""Text templates of the containers report; templates that all reports share are in `sbench.pages.words`."""

from sbench.pages.words import make_fill

TEMPLATES = {
    "fewest": "Fewest requests: {cases}.",
    "fewest case": "{container} for {accesses} ({counts})",
    "requests": "{new} sent {many}, {old} {few}, for {access}.",
    "pays": "{container}: the conversion pays off after {reads} of {access} ({interval}), compared with {source}. It "
    "takes {cost}, and a read saves {saved}.",
    "pays perhaps": "{container}: the conversion may pay off after {reads} of {access} or more, or never, compared "
    "with {source}.",
    "interval": "95 % CI {low} to {high}",
    "table of requests": "Requests to open the container and to read; medians, which are exact if all repeats agree. "
    "Forecast: computed from the layout alone.{prices}",
    "forecast differs": "the forecast differs from the count",
    "table of conversion": "Conversion of the source files; medians. Each record converts anew.",
    "table of payoff": "Reads after which the conversion has paid off, compared with {source}: time of the conversion "
    "divided by the time that a read saves, with the 95 % CI of its median over blocks. ∞: the median read saves "
    "nothing. Never: nor does the CI contain a saving.",
    "one array": "All containers hold the same array with the same grid; its values compress like temperatures.",
    "usual client": "Each container is read by its usual client: s3fs, and for Icechunk its own.",
}
fill = make_fill(TEMPLATES)
