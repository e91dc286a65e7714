//! What this machine offers to live runs: namespaces, devices that carry packets in and out of them,
//! programs inside, the kernel's own word about connections, and a clock.

pub mod clock;
pub mod default_cc;
pub mod device;
pub mod error;
pub mod frame;
pub mod internet;
pub mod isolation;
pub mod namespace;
pub mod program;
mod rtnetlink;
mod service;
pub mod socket;
pub mod tc;
mod tcp_header;
pub mod tcp_info;
pub mod tcp_sockets;
pub mod tee;
pub mod thread;

pub use device::DeviceKind;
pub use error::{Context, HostError};
pub use program::Program;
pub use rtnetlink::PeerRoute;
pub use service::ServiceControl;
