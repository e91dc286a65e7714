//! Hosts the congestion controls of `cc/` natively.
//!
//! An algorithm is written once, in C, against the kernel's `tcp_congestion_ops`; see `cc/skyhop_cc.h`.
//! Here are the same structs for Rust ([`TcpSock`] and what it embeds), the list of the algorithms
//! ([`Module`]) and one connection's running algorithm ([`Instance`]), whose methods are the hooks.
//!
//! ```
//! use skyhop_cc::{Instance, Module, TcpSock};
//!
//! let mut reno = Instance::new(Module::find("reno")?, &[])?.with_hz(1000).with_seed(1);
//! let mut tp = TcpSock { tcp_mstamp: 1_000_000, snd_cwnd: 100, ..TcpSock::default() };
//! reno.init(&mut tp);
//! assert_eq!(reno.ssthresh(&mut tp), 50);
//! # Ok::<(), skyhop_cc::CcError>(())
//! ```

mod error;
mod ffi;
mod instance;
mod module;
mod param;
mod sock;

pub use error::CcError;
pub use instance::Instance;
pub use module::{BpfObjects, Module};
pub use param::Param;
pub use sock::{
    AckSample, CaEvent, Handover, InetConnectionSock, InetSock, MinMax, MinMaxSample, Phase,
    RateSample, SK_PACING_FQ, SK_PACING_NEEDED, SK_PACING_NONE, Sock, TCP_INFINITE_SSTHRESH,
    TCP_INIT_CWND, TcpSock, jiffies,
};
