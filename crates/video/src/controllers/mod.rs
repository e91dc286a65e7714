//! Controllers, which choose each chunk's track: one file each, all named in the one table below.

#[macro_use]
mod table;

mod bba;
mod bola;
mod choice;
mod dynamic;
mod fast_mpc;
mod festive;
mod looking;
mod mpc;
mod mpc_d;
mod mpc_l;
mod mpc_o;
mod rate;
mod robust_mpc;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::Quoted;
use thiserror::Error;

pub use bba::BbaMap;
pub use bola::BolaForm;
pub use looking::Looking;
pub use mpc::Ties;

use crate::Film;
use crate::ahead::Ahead;
use crate::qoe::Qoe;

table! {
    Rate = "rate", rate::RateConfig, "the highest track within a share of the throughput (dash.js's ThroughputRule)";
    Bba = "bba", bba::BbaConfig, "a track by what is in the buffer alone (BBA-0, Huang et al. 2014)";
    Bola = "bola", bola::BolaConfig, "a track by buffer and utility (BOLA, Spiteri et al. 2016, as dash.js has it)";
    Festive = "festive", festive::FestiveConfig, "few, gradual changes around the harmonic mean of 20 chunks (Jiang et al. 2012)";
    Dynamic = "dynamic", dynamic::DynamicConfig, "rate while the buffer is short, bola when it is long (dash.js's DYNAMIC)";
    FastMpc = "fast-mpc", fast_mpc::FastMpcConfig, "plans 5 chunks at the harmonic mean of the last 5 (Yin et al. 2015)";
    RobustMpc = "robust-mpc", robust_mpc::RobustMpcConfig, "the same, discounted by the largest of the last 5 errors";
    MpcD = "mpc-d", mpc_d::MpcDConfig, "T3P's MPC-D: robust-mpc with its own estimate";
    MpcL = "mpc-l", mpc_l::MpcLConfig, "T3P's MPC-L: plans with a model's predictions";
    MpcO = "mpc-o", mpc_o::MpcOConfig, "T3P's MPC-O: plans with the truth";
}

/// What a controller knows as it chooses.
#[derive(Debug, Clone, Copy)]
pub struct View<'v> {
    /// What is played.
    pub film: &'v Film,
    /// What counts.
    pub qoe: &'v Qoe,
    /// Whose track is chosen.
    pub chunk: usize,
    /// That of the chunk before; `None` before the first.
    pub last_track: Option<usize>,
    /// What is left to play.
    pub buffer_s: f64,
    /// Since the session's beginning.
    pub now_s: f64,
    /// Above so much in the buffer the player waits.
    pub cap_s: f64,
    /// What lies ahead, where somebody claims to know.
    pub ahead: Option<&'v dyn Ahead>,
}

/// What a controller wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The track.
    pub track: usize,
    /// The throughput that it believes in.
    pub believed_bps: Option<f64>,
    /// How long the player is to wait before it asks.
    pub wait_s: f64,
}

impl Choice {
    const fn at_once(track: usize, believed_bps: Option<f64>) -> Self {
        Self { track, believed_bps, wait_s: 0.0 }
    }
}

/// A chunk that has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Come {
    /// Which.
    pub chunk: usize,
    /// In which track.
    pub track: usize,
    /// How large it is.
    pub bytes: f64,
    /// From the request until all of it was there.
    pub took_s: f64,
    /// For how long the player had waited before it asked, because its buffer was full.
    pub waited_s: f64,
}

impl Come {
    /// Its throughput.
    pub fn bps(&self) -> f64 {
        self.bytes * 8.0 / self.took_s
    }
}

/// What chooses tracks. `tests/video/conformance.rs` tests every row of the table.
pub trait Controller: fmt::Debug + Send {
    /// The next chunk's track, one of the film's.
    fn choose(&mut self, view: &View<'_>) -> Choice;

    /// A chunk has come.
    fn on_chunk(&mut self, _come: &Come) {}
}

/// What a controller is made of.
pub(crate) trait Parameters {
    /// It at work, for this film and QoE; whatever it draws follows from the seed.
    fn controller(&self, film: &Film, qoe: &Qoe, seed: u64) -> Box<dyn Controller>;

    /// What is wrong with them: the key, its value, what was expected.
    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        None
    }

    /// Whether it needs to be told what lies ahead.
    fn looks_ahead(&self) -> bool {
        false
    }
}

/// A controller, as lists show it.
#[derive(Debug, Clone, Copy)]
pub struct ControllerEntry {
    /// Its name in files.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// It with the published parameters.
    pub default: fn() -> ControllerChoice,
}

/// Why there is no such controller.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ControllerError {
    /// There is none of this name.
    #[error("unknown controller {}; expected {expected}", Quoted(name))]
    Unknown {
        /// The name given.
        name: String,
        /// Those that there are.
        expected: String,
    },
    /// One of its parameters cannot be.
    #[error("{controller}.{key} is {value}; expected {expected}")]
    Parameter {
        /// Its name.
        controller: &'static str,
        /// Which parameter.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it could be.
        expected: &'static str,
    },
}

/// One parameter's fault, unless it lies within what it may be.
fn within(
    key: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Option<(&'static str, String, &'static str)> {
    (!range.contains(&value)).then(|| (key, value.to_string(), expected))
}
