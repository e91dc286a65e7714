//! A link at a moment as Linux's disciplines have it.
//!
//! `tbf` lets a packet go as its transmission begins, for its bucket has room for one. The first `netem` behind it,
//! whose rate is the link's, has the packet leave when its transmission ends: both together are exact, however long
//! packets are. The second one takes packets at random and delays the others.

use skyhop_host::device::Disciplines;
use skyhop_host::tc::{Netem, TcQdisc, bytes_per_second};
use skyhop_model::LARGEST_PACKET;
use skyhop_units::{Bytes, Duration, Rate, Ratio};

/// What a direction is like at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) rate: Rate,
    pub(super) burst: Bytes,
    pub(super) delay: Duration,
    /// Whether what comes later leaves later, however short its delay is.
    pub(super) keeps_order: bool,
    pub(super) loss: Ratio,
    /// Whether all of it is lost.
    pub(super) loses_all: bool,
    pub(super) seed: u64,
}

/// What holds packets in order and takes them no time.
const AT_ONCE: u64 = u64::MAX;
/// The rate behind the bucket is larger than the bucket's by one in so many: both round a packet's time to
/// nanoseconds, and what the first took less would add up before the second.
const FASTER: u64 = 100_000;

pub(super) fn disciplines(moment: &Moment, child: &TcQdisc) -> Disciplines {
    let Moment { rate, burst, delay, keeps_order, loss, loses_all, seed } = *moment;
    let rate_behind = match burst {
        Bytes::ZERO => bytes_per_second(rate).saturating_add(bytes_per_second(rate) / FASTER + 1),
        // A bucket lets packets go without taking time.
        _ => AT_ONCE,
    };
    let sent =
        Netem { delay: Duration::ZERO, bytes_per_second: rate_behind, loss: Ratio::ZERO, seed: 0 };
    let travels = Netem {
        delay,
        bytes_per_second: if keeps_order { AT_ONCE } else { 0 },
        loss: if loses_all { Ratio::new(1.0).unwrap_or(loss) } else { loss },
        seed,
    };
    let limit = match child {
        TcQdisc::Pfifo { limit } | TcQdisc::Bfifo { limit } => *limit,
        // It hands its own to fifos alone.
        _ => 1,
    };
    let burst = if burst == Bytes::ZERO { LARGEST_PACKET } else { burst };
    Disciplines {
        queue: [TcQdisc::Tbf { rate, burst, limit }, child.clone()],
        line: [TcQdisc::Netem(sent), TcQdisc::Netem(travels)],
    }
}
