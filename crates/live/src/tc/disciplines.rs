//! Linux queue disciplines that emulate a link's state at one time.
//!
//! `tbf` releases a packet when its transmission begins, because its bucket holds one packet. The first `netem` after
//! it has the link's rate and releases the packet when its transmission ends; together they are exact for packets of
//! any size. The second `netem` drops packets at random and delays the others.

use skyhop_host::device::Disciplines;
use skyhop_host::tc::{Netem, TcQdisc, bytes_per_second};
use skyhop_model::LARGEST_PACKET;
use skyhop_units::{Bytes, Duration, Rate, Ratio};

/// State of a link in one direction at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkState {
    pub(super) rate: Rate,
    pub(super) burst: Bytes,
    pub(super) delay: Duration,
    /// Whether packets leave in order of arrival even if the delay falls.
    pub(super) keeps_order: bool,
    pub(super) loss: Ratio,
    /// Whether every packet is lost.
    pub(super) loses_all: bool,
    pub(super) seed: u64,
}

/// Rate for netem, in B/s, with which it keeps packets in order without a transmission time.
const UNLIMITED: u64 = u64::MAX;
/// netem's rate exceeds the rate of the bucket by 1/`RATE_MARGIN`: both round transmission times to
/// nanoseconds, and packets that `tbf` released too early would otherwise accumulate before netem.
const RATE_MARGIN: u64 = 100_000;

pub(super) fn disciplines(state: &LinkState, child: &TcQdisc) -> Disciplines {
    let LinkState { rate, burst, delay, keeps_order, loss, loses_all, seed } = *state;
    let rate_behind = match burst {
        Bytes::ZERO => {
            bytes_per_second(rate).saturating_add(bytes_per_second(rate) / RATE_MARGIN + 1)
        }
        // With a `burst` in the scenario, packets leave the token bucket without transmission time.
        _ => UNLIMITED,
    };
    let transmission =
        Netem { delay: Duration::ZERO, bytes_per_second: rate_behind, loss: Ratio::ZERO, seed: 0 };
    let propagation = Netem {
        delay,
        bytes_per_second: if keeps_order { UNLIMITED } else { 0 },
        loss: if loses_all { Ratio::new(1.0).unwrap_or(loss) } else { loss },
        seed,
    };
    let limit = match child {
        TcQdisc::Pfifo { limit } | TcQdisc::Bfifo { limit } | TcQdisc::PfifoHeadDrop { limit } => {
            *limit
        }
        // tbf passes its limit only to fifos; other child disciplines have limits of their own.
        _ => 1,
    };
    let burst = if burst == Bytes::ZERO { LARGEST_PACKET } else { burst };
    Disciplines {
        queue: [TcQdisc::Tbf { rate, burst, limit }, child.clone()],
        line: [TcQdisc::Netem(transmission), TcQdisc::Netem(propagation)],
    }
}
