//! TCP with Linux's behaviour, without IO: senders and receivers advance by calls that carry the current time.
//!
//! An [`Endpoint`] is one end of a connection with data both ways: it takes what its application writes,
//! delivers what it reads, and exchanges packets with the other end over the path that the driver models. It
//! combines a [`Sender`] and a [`Receiver`], which also work alone where data flows in one direction only.
//! After every call the driver collects the packets to send (`transmit`, `poll_transmit`); it calls `on_timer`
//! when the time of `next_timer` has come. The congestion control is a module of cc/ or any other
//! implementation of the kernel's hooks ([`CongestionControl`]); [`CALLER`] lists the hooks that are called.
//!
//! Each part of the sender has a file of its own: the scoreboard, RACK-TLP (RFC 8985), PRR (RFC 6937bis),
//! timeouts with F-RTO (RFC 6298, RFC 5682), undo (RFC 3522, RFC 3708), delivery rate samples, cwnd validation,
//! pacing, ECN (RFC 3168), Nagle's algorithm and TCP_CORK, zero-window probes, and retry limits. The parts of
//! the receiver are delayed ACKs, SACK and the receive buffer. SACK reneging and urgent data are not modelled.

mod ack;
mod config;
mod congestion;
mod cwnd_validation;
mod delayed_ack;
mod ecn;
mod endpoint;
mod handshake;
mod info;
mod jiffies;
mod keep_alive;
mod nagle;
mod newreno;
mod next_segment;
mod pacing;
mod packet;
mod persist;
mod prr;
mod rack;
mod rate_sample;
mod receive_buffer;
mod receive_tuning;
mod receiver;
mod recovery;
mod retry_limits;
mod ring_bits;
mod rto;
mod rtt;
mod rules;
mod sack;
mod sack_tagging;
mod sacked_ranges;
mod scoreboard;
mod segment;
mod segment_lengths;
mod sender;
mod sndbuf;
mod stream;
mod tlp;
mod transmit;
mod undo;

pub use config::{EndpointConfig, HostConfig, ReceiverConfig, SenderConfig};
pub use congestion::CALLER;
pub use endpoint::{ConnectionState, Endpoint, Failure};
pub use info::TcpInfo;
pub use packet::{PackedAck, Packet, PacketSink};
pub use receiver::{Receiver, ReceiverStats};
pub use rules::parameters_of;
pub use sack::{MAX_SACK_BLOCKS, SackBlock, SackBlocks};
pub use segment::{Ack, Segment, SegmentKind};
pub use sender::Sender;
pub use skyhop_cc::{AckSample, CaEvent, CongestionControl, RateSample, TcpSock};
