//! The words that appear in scenarios, paths and results, each written down once.
//!
//! What needs a list of them, a count for each or a column for each loops over `ALL`: a new word
//! is one line here, and the place that has cause to say it. Python reads the same lists from
//! `skyhop._core`.

#[macro_use]
mod words;

mod app;
mod cc;
mod counts;
mod dscp;
mod ecn;
mod ends;
mod event;
mod layered;
mod live;
mod packet;
mod path;
mod plain;
mod tcp;

pub use app::{AppTable, PlayerCompat};
pub use cc::{
    CcLanguage, MOST_CC_LETTERS, OUR_CC, POLICY_CC, cc_label, cc_language, cc_table, our_card,
    our_card_name, our_cc_name, plain_cc_name,
};
pub use counts::{Counts, Drops, LossReason};
pub use dscp::Dscp;
pub use ecn::Ecn;
pub use ends::{Direction, End, PATH_LINK};
pub use event::{EventKind, HandoverKind, PathEventKind, PhaseKind};
pub use live::{LinuxLink, LiveDevice};
pub use packet::{ETHERNET_HEADER, LARGEST_PACKET, MSS, MTU, UDP_HEADERS, mss};
pub use path::{Compat, DuringOutage, Relay};
pub use plain::{OR_FORCE, one_line, plain_error, thousands};
pub use tcp::{BufferKeys, BufferSizes, CongestionState, KeepAlive, Profile};
pub use words::UnknownWord;
