"""The figure of report timing errors: their eCDF, as SaTCP's Figure 4 has it."""

from __future__ import annotations

from matplotlib.figure import Figure

from skyhop.plot.style import FLOW_COLOURS, GREY, ecdf, new_figure
from skyhop.report_timing import T_ERR_SHARE, ReportTiming

_SHOWN_SHARE = 0.98
"""What lies further right belongs to satellites that manoeuvre."""


def report_timing_figure(found: ReportTiming) -> Figure:
    """Draw the share of satellites at or below each error, with the median and T_err marked."""
    figure, (ax,) = new_figure(4.6, [1])
    ax.step(*ecdf(found.errors_s), where="post", color=FLOW_COLOURS[0], linewidth=1.6)
    for share, name, place, align in (
        (0.5, "median", (9, -11), "left"),
        (T_ERR_SHARE, f"{T_ERR_SHARE:.0%}".replace("%", " %"), (-7, 7), "right"),
    ):
        error_s = found.quantile_s(share)
        ax.plot(error_s, share, "o", color=FLOW_COLOURS[1], markersize=5, zorder=3)
        ax.annotate(
            f"{name}: {error_s:.3g} s",
            (error_s, share),
            xytext=place,
            ha=align,
            textcoords="offset points",
            fontsize=10,
        )
    ax.axvline(found.t_err_s, color=GREY, linestyle="--", linewidth=1)
    ax.text(
        found.t_err_s, 0.04, f" T_err = {found.t_err_s:g} s", color=GREY, fontsize=10, ha="left"
    )
    right_s = max(found.quantile_s(_SHOWN_SHARE), 1.4 * found.t_err_s)
    ax.set_xlim(0, right_s)
    ax.set_ylim(0, 1.02)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    ax.set_xlabel("report timing error (s)", fontsize=10)
    ax.set_ylabel("satellites at or below", fontsize=10)
    beyond = int((found.errors_s > right_s).sum())
    ax.set_title(_title(found, beyond), fontsize=10, loc="left", color=GREY)
    return figure


def _title(found: ReportTiming, beyond: int) -> str:
    more = f"; {beyond} lie further right" if beyond else ""
    left_out = f"; {found.left_out} left out" if found.left_out else ""
    return (
        f"{len(found.errors_s)} satellites, predicted for {found.at} from elements "
        f"{found.age_h:.1f} h old{more}{left_out}"
    )
