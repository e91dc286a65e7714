//! Network of satellites and sites: packets go hop by hop, on several threads with the same result to the last bit.
//!
//! # Model
//!
//! A site sends through its device, which has a rate and a queue, into the air. The satellite that receives a packet
//! hands it to one of its lasers, or to a device towards the sites, by the routes in force at the time
//! ([`View`]). A site without an antenna of its own is behind others: a line of fixed delay leads from it to each. Devices and lasers are links of `skyhop_link`; the air between a satellite and a site adds a delay that
//! changes linearly during a step. A change of the routes moves the packets that come after it. A satellite that sets
//! loses the packets that are in the air between it and the site.
//!
//! # Order of events
//!
//! A node's events at the same time happen in this order: transmissions end, packets arrive over lasers, by the numbers of
//! the lasers, then through the air, by the numbers of the senders; then the ends of flows act.
//!
//! # Windows
//!
//! A packet takes at least the shortest delay of all links from node to node. Time is divided into windows of this length:
//! what enters a link within a window arrives after it, so that each satellite processes its own events of the window
//! without regard to the others, on any thread. Between windows the threads exchange packets. The events of a node, and
//! their order, do not depend on where other nodes are simulated.

mod arrivals;
mod calendar;
mod device;
mod downlinks;
mod fleet;
mod ground;
mod layout;
mod network;
mod queue;
mod sky;
mod threads;
mod transfer;
mod view;

pub use calendar::Calendar;
pub use ground::{Hosts, Uplinks};
pub use layout::{Downlink, Laser, Layout};
pub use network::{Lost, Network};
pub use transfer::Routed;
pub use view::{Air, DOWN, NO_ROUTE, NO_SATELLITE, Port, Routes, View, Views};
