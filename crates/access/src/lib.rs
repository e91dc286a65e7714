//! Access links as they are measured: profiles, and paths drawn from them.
//!
//! A [`Profile`] describes the link between a terminal and the Internet by distributions and their memory: the lowest
//! round trip of a slot, the waits for a transmission, rates, bursts of loss, and the hole at each reconfiguration. A
//! [`draw`] of it is a [`skyhop_path::PathTrace`], the same one for the same seed, which all engines carry out.

mod draw;
mod losses;
mod process;
mod profile;
mod steps;

pub use draw::{DrawError, Request, draw};
pub use process::{Process, RANKS};
pub use profile::{
    Bursts, Frames, Grid, Loss, Outages, PhaseFactor, Profile, ProfileError, RateModel,
    Reconfiguration, RoundTrip, Way,
};
