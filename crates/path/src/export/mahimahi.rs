//! Rate of a path as a packet-delivery trace of mahimahi: one line per opportunity to deliver a packet of
//! 1500 bytes. A line is the millisecond, since the trace's beginning, by whose end the packet is
//! delivered. There are no opportunities during an outage.

use std::io::{self, Write};

use skyhop_model::LARGEST_PACKET;
use skyhop_units::{Duration, Instant, Rate};
use thiserror::Error;

use super::state::TraceCursor;
use crate::trace::PathTrace;

const MS: Duration = Duration::from_millis(1);
/// Size of a packet in bits times nanoseconds per second, for comparison with a rate in bit/s times a time in ns.
const PACKET_WORK: u128 = LARGEST_PACKET.as_u64() as u128 * 8 * 1_000_000_000;
/// Maximum number of packets: about 400 MB of text.
const MOST_PACKETS: u64 = 50_000_000;
/// Maximum duration of a trace, a year, in ms.
const MOST_MS: u64 = 366 * 86_400_000;

/// Reason for which a path cannot be a packet-delivery trace.
#[derive(Debug, Error)]
pub enum MahimahiError {
    /// Neither the path nor the user specifies a rate.
    #[error("the path has no rate of its own: say which to assume, such as --rate \"150 Mbit/s\"")]
    NoRate,
    /// No packet passes; mahimahi refuses an empty trace.
    #[error("not a single packet passes: the rate is zero or the path is down all the time")]
    Nothing,
    /// The trace would be too long.
    #[error("more than {MOST_PACKETS} packets, or a year: export a shorter path or a lower rate")]
    TooLong,
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Write the delivery opportunities from `from` to `to`; `assumed` is the rate for times at which the path
/// specifies none. mahimahi repeats the trace from its beginning once it is over.
///
/// # Errors
/// No packet passes, there are too many packets, or `output` cannot be written.
pub fn write_mahimahi(
    trace: &PathTrace,
    assumed: Option<Rate>,
    output: &mut impl Write,
) -> Result<(), MahimahiError> {
    if assumed.is_none() && trace.frames.iter().all(|frame| frame.rate.is_none()) {
        return Err(MahimahiError::NoRate);
    }
    let milliseconds = trace.header.duration_ns.div_ceil(MS.as_nanos());
    if milliseconds > MOST_MS {
        return Err(MahimahiError::TooLong);
    }
    let mut cursor = TraceCursor::new(trace);
    let (mut work, mut packets) = (0_u128, 0_u64);
    for ms in 1..=milliseconds {
        let state = cursor.at(Instant::START + MS * (ms - 1));
        let rate = state.delays.and(state.rate.or(assumed)).unwrap_or(Rate::ZERO);
        work += u128::from(rate.bits_per_second()) * u128::from(MS.as_nanos());
        while work >= PACKET_WORK {
            work -= PACKET_WORK;
            packets += 1;
            if packets > MOST_PACKETS {
                return Err(MahimahiError::TooLong);
            }
            writeln!(output, "{ms}")?;
        }
    }
    if packets == 0 { Err(MahimahiError::Nothing) } else { Ok(()) }
}
