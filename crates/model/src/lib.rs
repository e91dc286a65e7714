//! Names and constants that appear in scenarios, paths and results, each defined once.
//!
//! Code that needs a list of the names, or a count or a column for each, loops over `ALL`: a new name is one
//! line here and the code that uses it. Python reads the same lists from `skyhop._core`.

#[macro_use]
mod words;

mod app;
mod cc;
mod counts;
mod dscp;
mod ecn;
mod ends;
mod event;
mod file_kind;
mod layered;
mod live;
mod messages;
mod packet;
mod path;
mod tcp;

pub use app::{AppTable, PlayerCompat};
pub use cc::{
    CC_NAME_MAX_LEN, CcLanguage, POLICY_CC, SKYHOP_CC_PREFIX, cc_label, cc_language, cc_table,
    plain_cc_name, shipped_card, shipped_card_name, skyhop_cc_name,
};
pub use counts::{Counts, Drops, LossReason};
pub use dscp::Dscp;
pub use ecn::Ecn;
pub use ends::{Direction, End, PATH_LINK};
pub use event::{EventKind, HandoverKind, PathEventKind, PhaseKind};
pub use file_kind::{KIND_BYTES, other_kind};
pub use live::{LinuxLink, LiveDevice};
pub use messages::{OR_FORCE_SIZE, line_at, one_line, thousands, with_hint, without_numbers};
pub use packet::{ETHERNET_HEADER, LARGEST_PACKET, MSS, MTU, UDP_HEADERS, mss};
pub use path::{Compat, DuringOutage, Relay, ShellLinks};
pub use tcp::{BufferKeys, BufferSizes, CongestionState, KeepAlive, Profile};
pub use words::UnknownName;
