//! Linux facilities for live runs: network namespaces and their devices, queue disciplines, programs inside
//! namespaces, the kernel's information about TCP connections, and a clock.

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
