//! A path's rate as a packet-delivery trace of mahimahi: a line per packet of 1500 bytes that may
//! pass, with the millisecond by whose end it has passed. Nothing passes while the path is down.

use std::io::{self, Write};

use skyhop_model::LARGEST_PACKET;
use skyhop_units::{Duration, Instant, Rate};
use thiserror::Error;

use super::state::Follower;
use crate::trace::PathTrace;

const MS: Duration = Duration::from_millis(1);
/// Bits times nanoseconds per second, so that a rate times a time in ns can be compared with it.
const PACKET_WORK: u128 = LARGEST_PACKET.as_u64() as u128 * 8 * 1_000_000_000;
/// About 400 MB of text.
const MOST_PACKETS: u64 = 50_000_000;
/// A year.
const MOST_MS: u64 = 366 * 86_400_000;

/// Why a path cannot be a packet-delivery trace.
#[derive(Debug, Error)]
pub enum MahimahiError {
    /// Neither the path nor the user says how fast it is.
    #[error("the path has no rate of its own: say which to assume, such as --rate \"150 Mbit/s\"")]
    NoRate,
    /// mahimahi refuses a trace without packets.
    #[error("not a single packet passes: the rate is zero or the path is down all the time")]
    Nothing,
    /// The trace would be too long.
    #[error("more than {MOST_PACKETS} packets, or a year: export a shorter path or a lower rate")]
    TooLong,
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Writes the packets that may pass from `from` to `to`; `assumed` is the rate where the path has
/// none of its own. mahimahi begins again after the last one.
///
/// # Errors
/// Nothing passes, too much does, or `output` fails.
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
    let mut follower = Follower::new(trace);
    let (mut work, mut packets) = (0_u128, 0_u64);
    for ms in 1..=milliseconds {
        let state = follower.at(Instant::START + MS * (ms - 1));
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
