//! Path as CSV, one row per frame; `import::parse_csv` reads it back without loss.

use std::io::{self, Write};

use skyhop_units::{Duration, Rate};

use crate::import::{TABLE_BACK_COLUMNS, TABLE_COLUMNS, TABLE_MARK};
use crate::trace::{Frame, PathEvent, PathTrace};

/// Write the header as JSON in a comment, the columns of a path file, and a row per frame. The columns of the
/// direction back follow only if a frame has a value there.
///
/// # Errors
/// `output` cannot be written.
pub fn write_csv(trace: &PathTrace, output: &mut impl Write) -> io::Result<()> {
    let header = serde_json::to_string(&trace.header)?;
    let with_back = trace.frames.iter().any(Frame::differs_back);
    let back = if with_back { TABLE_BACK_COLUMNS } else { "" };
    writeln!(output, "{TABLE_MARK}{header}\n{TABLE_COLUMNS}{back}")?;
    trace.frames.iter().try_for_each(|frame| write_frame(frame, with_back, output))
}

fn write_frame(frame: &Frame, with_back: bool, output: &mut impl Write) -> io::Result<()> {
    let Frame { at, nodes, hop_delays, delay, delay_back, events, .. } = frame;
    let ns = |duration: &Duration| duration.as_nanos().to_string();
    let bps =
        |rate: Option<Rate>| rate.map_or_else(String::new, |r| r.bits_per_second().to_string());
    // `to_string` writes the shortest text that reads back as the same number.
    let ratio = |loss: Option<f64>| loss.map_or_else(String::new, |loss| loss.to_string());
    let mut fields = vec![
        at.as_nanos().to_string(),
        joined(nodes, ToString::to_string),
        joined(hop_delays, ns),
        delay.as_ref().map_or_else(String::new, ns),
        delay_back.as_ref().map_or_else(String::new, ns),
        bps(frame.rate),
        ratio(frame.loss),
        joined(events, event_text),
    ];
    if with_back {
        fields.extend([bps(frame.rate_back), ratio(frame.loss_back)]);
    }
    writeln!(output, "{}", fields.join(","))
}

fn joined<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(" ")
}

fn event_text(event: &PathEvent) -> String {
    let hop = event.hop.map_or_else(String::new, |hop| hop.to_string());
    let (at_ns, outage_ns) = (event.at.as_nanos(), event.outage.as_nanos());
    format!("{at_ns}:{}:{hop}:{outage_ns}", event.kind.name())
}
