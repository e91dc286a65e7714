//! Path as a shell script that drives Linux's netem through tc.

use std::io::{self, Write};

use skyhop_units::{Duration, Instant, Rate};

use super::state::{PathState, TraceCursor};
use crate::trace::PathTrace;

/// Script before the table of the path, with its usage.
const BEGIN: &str = r#"#!/bin/sh
# Plays a path with netem: DEVICE delays, limits and loses what it sends (from -> to), BACK_DEVICE,
# where one is given, only delays (to -> from). Needs root, tc and the kernel module sch_netem.
# Both devices keep netem until: tc qdisc del dev DEVICE root
set -eu
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: $0 DEVICE [BACK_DEVICE]" >&2
    exit 2
fi
device=$1
back_device=${2:-}
now_ms() { echo $(($(date +%s%N) / 1000000)); }
begin_ms=$(now_ms)
# t_ms delay_us loss_percent rate_bps (- where not known) back_delay_us back_loss_percent
while read -r t_ms delay_us loss_percent rate_bps back_delay_us back_loss_percent; do
    wait_ms=$((begin_ms + t_ms - $(now_ms)))
    if [ "$wait_ms" -gt 0 ]; then
        sleep "$(printf '%d.%03d' $((wait_ms / 1000)) $((wait_ms % 1000)))"
    fi
    rate=
    if [ "$rate_bps" != - ]; then rate="rate ${rate_bps}bit"; fi
    # shellcheck disable=SC2086  # no rate is no argument
    tc qdisc replace dev "$device" root netem limit 100000 \
        delay "${delay_us}us" loss "${loss_percent}%" $rate
    if [ -n "$back_device" ]; then
        tc qdisc replace dev "$back_device" root netem limit 100000 \
            delay "${back_delay_us}us" loss "${back_loss_percent}%"
    fi
done <<'PATH_TABLE'
"#;

/// Write the script, with a line for each `step` in which a value changes.
///
/// netem supports neither a rate of zero nor outages: both become a loss of 100 % with an unchanged delay, in the
/// case of an outage in both directions.
///
/// # Errors
/// `output` cannot be written.
pub fn write_netem(trace: &PathTrace, step: Duration, output: &mut impl Write) -> io::Result<()> {
    output.write_all(BEGIN.as_bytes())?;
    let mut cursor = TraceCursor::new(trace);
    let mut delays =
        trace.frames.iter().find_map(|f| f.delay.zip(f.delay_back)).unwrap_or_default();
    let mut last = String::new();
    for index in 0..trace.header.duration_ns.div_ceil(step.as_nanos().max(1)) {
        let after = step * index;
        let state = cursor.at(Instant::START + after);
        delays = state.delays.unwrap_or(delays);
        let values = values(state, delays);
        if values != last {
            writeln!(output, "{} {values}", after.as_micros() / 1_000)?;
            last = values;
        }
    }
    writeln!(output, "{} {last}\nPATH_TABLE", trace.header.duration_ns / 1_000_000)
}

fn values(state: PathState, (there, back): (Duration, Duration)) -> String {
    let up = state.delays.is_some();
    let passes = up && state.rate != Some(Rate::ZERO);
    let loss_percent = if passes { state.loss.unwrap_or(0.0) * 100.0 } else { 100.0 };
    let back_loss_percent = if up { 0 } else { 100 };
    let rate = state.rate.filter(|rate| *rate > Rate::ZERO);
    let rate = rate.map_or_else(|| "-".to_owned(), |rate| rate.bits_per_second().to_string());
    let (there_us, back_us) = (there.as_micros(), back.as_micros());
    format!("{there_us} {} {rate} {back_us} {back_loss_percent}", percent(loss_percent))
}

/// Format a percentage with the resolution of netem's 32-bit probability.
fn percent(percent: f64) -> String {
    let text = format!("{percent:.7}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
