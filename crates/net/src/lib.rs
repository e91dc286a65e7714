//! Network of satellites and sites: packets go hop by hop, on several threads with the same result to the last bit.
//!
//! # Model
//!
//! A site sends through its device, which has a rate and a queue, into the air. The satellite that receives a packet
//! hands it to one of its lasers, or to its device towards the sites, by the routes in force at the time
//! ([`View`]). Devices and lasers are links of `skyhop_link`; the air between a satellite and a site adds a delay that
//! changes linearly during a step. A change of the routes moves the packets that come after it. A satellite that sets
//! loses the packets that are in the air between it and the site.
//!
//! # Order of events
//!
//! Events at the same time happen in the order of component numbers: devices, arrivals over each laser, arrivals at
//! each node through the air, ends of flows. As every component belongs to one node, and a packet takes time from node
//! to node, nodes may be simulated on different threads: each thread runs for the shortest delay between its nodes and
//! those of others, and then exchanges packets with them. The events of a node, and their order, do not depend on where
//! the other nodes are simulated.

mod arrivals;
mod calendar;
mod device;
mod fleet;
mod ground;
mod layout;
mod network;
mod pool;
mod sky;
mod threads;
mod transfer;
mod view;

pub use calendar::Calendar;
pub use ground::{Hosts, Uplinks};
pub use layout::{Laser, Layout};
pub use network::{Lost, Network};
pub use transfer::Routed;
pub use view::{Air, DOWN, NO_ROUTE, NO_SATELLITE, Port, Routes, View, Views};
