//! TCP and UDP packets of the simulator as headers on the wire, and captures of them.
//!
//! The simulator's packets name segments by their numbers, and have sizes but no bytes. A [`Connection`] translates them to
//! the fields of a TCP header, in which sequence numbers count bytes; [`headers`] has the IPv4, TCP and UDP headers of
//! these fields, and [`pcapng`] the blocks of a capture file. Nothing here opens a file.

mod capture;
mod connection;
pub mod headers;
pub mod pcapng;

pub use capture::{CapturedPacket, LinkEnd};
pub use connection::{Connection, Way};
pub use headers::{Addresses, Flags, TcpFields};
