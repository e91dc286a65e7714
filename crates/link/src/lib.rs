//! A sans-IO link: it never reads a clock, sleeps or opens a socket; `now` is an argument.
//!
//! A [`Link`] is one direction of a path. Its [`LinkSchedule`] fixes in advance how rate, delay, loss and
//! outages change over time; its driver, in virtual time or under the wall clock, decides which packets go
//! through it.
//!
//! # Stages that a packet passes
//!
//! 1. **Queue and rate.** The packet waits in a queue discipline ([`QDISCS`]) until the transmitter is free,
//!    and then takes its wire size divided by the rate. A rate that changes during a transmission takes effect
//!    at once; at rate zero no transmission begins or progresses. The packet being transmitted no longer counts
//!    towards the queue's limit. The discipline may mark ECN-capable packets instead of dropping them, let
//!    packets of one flow overtake another's, and hold packets back while the transmitter is free.
//!    A [`Background`] takes a part of the rate, and room in the queue.
//!    With demand assignment ([`DamaConfig`]) packets leave only when a frame begins, as far as a grant lets them.
//! 2. **Random loss** with the probability that holds when the transmission ends: independent from packet to packet,
//!    or in bursts ([`GilbertElliott`]). Bursts in time are a property of the link: when they begin and end does not
//!    depend on the packets.
//! 3. **Outage.** With [`DuringOutage::Drop`](skyhop_model::DuringOutage) a packet whose transmission ends in
//!    the outage is lost. With [`DuringOutage::Hold`](skyhop_model::DuringOutage) the rate is zero during the
//!    outage: packets are lost only if they find the queue full.
//! 4. **Delay line.** A packet that enters at `s` arrives at `s + delay(s)`, but never before a packet that
//!    entered earlier on the same route: if the delay falls quickly, packets bunch up instead of overtaking.
//!    Packets overtake only at a piece marked `new_route`. A [`Dismantled`] hop loses the packets that are on
//!    it.
//!
//! # Guarantees to the driver
//!
//! - Every packet that is enqueued either arrives or is counted under exactly one
//!   [`LossReason`](skyhop_model::LossReason).
//! - Evaluation is lazy and exact: a poll that comes late returns the same arrivals with the same
//!   times, loses the same packets and draws the same random numbers as one that was on time.
//! - Time is in whole nanoseconds. The transmitter carries fractions of a nanosecond from packet
//!   to packet while it is busy, so that a saturated link carries its rate and no less.
//! - Events at the same time happen in this order: a transmission ends and the next begins, a hop is
//!   dismantled, a packet is enqueued.
//! - The same configuration, packets and times give the same result, whatever the machine.
//!
//! # Example
//!
//! Two packets of 1500 bytes over 12 Mbit/s and 20 ms:
//!
//! ```
//! use skyhop_model::ETHERNET_HEADER;
//! use skyhop_link::{Limit, Link, LinkConfig, LinkSchedule, Packet, QueueDiscipline};
//! use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};
//!
//! let rate = Rate::from_bits_per_second(12_000_000);
//! let mut link = Link::new(LinkConfig {
//!     schedule: LinkSchedule::fixed(Duration::from_millis(20), rate, Ratio::ZERO),
//!     qdisc: QueueDiscipline::default(),
//!     queue: Limit::Packets(100),
//!     seed: 1,
//! })?;
//!
//! let mut now = Instant::START;
//! for payload in ["first", "second"] {
//!     link.enqueue(now, Packet::new(Bytes::new(1486) + ETHERNET_HEADER, payload));
//! }
//! while let Some(wakeup) = link.next_wakeup() {
//!     now = wakeup; // a live driver sleeps here
//!     while let Some(arrival) = link.poll(now) {
//!         println!("{} arrived at {}", arrival.packet.payload, arrival.at);
//!     }
//! }
//! assert_eq!(now, Instant::START + Duration::from_millis(20 + 2));
//! assert_eq!(link.stats().delivered_packets, 2);
//! # Ok::<(), skyhop_link::LinkError>(())
//! ```

mod background;
mod by_step;
mod config;
mod dama;
mod delay_line;
mod error;
mod fabric;
mod fluid;
mod impairment;
mod lines;
mod link;
mod link_tail;
mod loss;
mod on_arrival;
mod packet;
mod plain;
mod qdisc;
mod rng;
mod routes;
mod schedule;
mod stats;
mod timeline;
mod transmissions;
mod transmitter;

pub use background::{Background, BackgroundMeter, Headway, Line, LineLoad, NO_NODE, Via};
pub use config::LinkConfig;
pub use dama::DamaConfig;
pub use error::{LinkError, ScheduleError};
pub use fabric::Fabric;
pub use link::Link;
pub use loss::{GilbertElliott, Loss, Switching};
pub use packet::{Arrival, Drop, NO_FLOW, Packet};
pub use plain::PlainLink;
pub use qdisc::{
    AckFilter, CakeConfig, CarriesTcp, CodelConfig, Diffserv, FifoConfig, FifoDrop, FqCodelConfig,
    FqConfig, FqPieConfig, Isolation, Limit, PieConfig, QDISCS, QdiscEntry, QueueDiscipline,
    RedConfig, RedThresholds, SfqConfig, TcpFacts, ThresholdDropConfig,
};
pub use routes::{Hop, LinkRoute, Routes, Step};
pub use schedule::{DelayPiece, Dismantled, LinkSchedule, Outage, Piece};
pub use stats::LinkStats;
