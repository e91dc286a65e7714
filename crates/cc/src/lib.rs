//! Congestion controls: the hooks that TCP calls, and the available implementations.
//!
//! [`CongestionControl`] has the hooks of Linux's `tcp_congestion_ops`, with the same structs ([`TcpSock`] and those
//! embedded in it). A controller is either a Rust type that implements the trait, or a C file in `cc/`, which serves
//! simulator and kernel alike (see `cc/skyhop_cc.h`): this crate lists these files ([`Module`]) and hosts them
//! ([`Instance`]). A [`Registry`] finds controllers of both kinds by name, and a [`Caller`] says which hooks and
//! features an engine's TCP has.
//!
//! ```
//! use skyhop_cc::{CongestionControl, Instance, Module, TcpSock};
//!
//! let mut reno = Instance::new(Module::find("reno")?, &[])?.with_hz(1000).with_seed(1);
//! let mut tp = TcpSock { tcp_mstamp: 1_000_000, snd_cwnd: 100, ..TcpSock::default() };
//! reno.init(&mut tp);
//! assert_eq!(reno.ssthresh(&mut tp), 50);
//! # Ok::<(), skyhop_cc::CcError>(())
//! ```

#[rustfmt::skip]
pub mod bindings;
mod caller;
mod congestion_control;
mod decider;
mod error;
mod instance;
mod map;
mod module;
mod param;
mod registry;
mod sock;

pub use bindings::{
    AckSample, CaEvent, Decision, Handover, InetConnectionSock, InetSock, MinMax, MinMaxSample,
    RateSample, Report, SK_PACING_FQ, SK_PACING_NEEDED, SK_PACING_NONE, Sock,
    TCP_INFINITE_SSTHRESH, TCP_INIT_CWND, TcpSock,
};
pub use caller::Caller;
pub use congestion_control::CongestionControl;
pub use decider::{Decider, OutputCounts};
pub use error::CcError;
pub use instance::Instance;
pub use map::MapValue;
pub use module::{BpfObjects, Module};
pub use param::Param;
pub use registry::{Announcements, Controller, Registry, Setup};
pub use sock::{Phase, jiffies};
