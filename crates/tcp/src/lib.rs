//! TCP with Linux's behaviour, sans IO: senders and receivers that are stepped by calls that
//! carry the time.
//!
//! An [`Endpoint`] is one end of a connection with data both ways: what its application writes, what it reads, and the
//! packets that go over whatever path the driver models. It puts together a [`Sender`] and a [`Receiver`], which serve
//! alone where data goes one way. After every call the driver sends what leaves then (`transmit`, `poll_transmit`), and it
//! calls `on_timer` when `next_timer` has come. Congestion control is a module of cc/, or anything else that implements
//! the kernel's hooks ([`CongestionControl`]); [`CALLER`] says which are called.
//!
//! The sender's parts, each in a file of its own: the scoreboard, RACK-TLP (RFC 8985), PRR
//! (RFC 6937bis), timeouts with F-RTO (RFC 6298, RFC 5682), undo (RFC 3522, RFC 3708), delivery
//! rate samples, cwnd validation, pacing, ECN (RFC 3168), Nagle's algorithm and the cork, probes of shut windows, and
//! giving up. The receiver's: delayed ACKs, SACK, and its buffer. SACK reneging and urgent data are not modelled.

mod ack;
mod config;
mod congestion;
mod cwnd_validation;
mod delayed_ack;
mod ecn;
mod endpoint;
mod giving_up;
mod handshake;
mod info;
mod jiffies;
mod keep_alive;
mod leaving;
mod lengths;
mod nagle;
mod newreno;
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
mod ring_bits;
mod rto;
mod rtt;
mod rules;
mod sack;
mod sack_tagging;
mod sacked_ranges;
mod scoreboard;
mod segment;
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
pub use packet::{Outlet, PackedAck, Packet};
pub use receiver::{Receiver, ReceiverStats};
pub use rules::parameters_of;
pub use sack::{MAX_SACK_BLOCKS, SackBlock, SackBlocks};
pub use segment::{Ack, Segment, SegmentKind};
pub use sender::Sender;
pub use skyhop_cc::{AckSample, CaEvent, CongestionControl, RateSample, TcpSock};
