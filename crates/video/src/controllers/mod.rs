//! Controllers, which choose each chunk's track: one file each, all named in the one table below.

#[macro_use]
mod table;

mod bba;
mod bola;
mod choice;
mod dynamic;
mod fast_mpc;
mod festive;
mod lookahead;
mod mpc;
mod mpc_d;
mod mpc_l;
mod mpc_o;
mod rate;
mod robust_mpc;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::{Quoted, did_you_mean};
use thiserror::Error;

pub use bba::BbaMap;
pub use bola::BolaForm;
pub use lookahead::LookaheadMode;
pub use mpc::Ties;

use crate::Film;
use crate::forecast::RateForecast;
use crate::qoe::Qoe;

table! {
    Rate = "rate", rate::RateConfig, "chooses the highest track within a share of the throughput (dash.js's ThroughputRule)";
    Bba = "bba", bba::BbaConfig, "chooses by the buffer level alone (BBA-0, Huang et al. 2014)";
    Bola = "bola", bola::BolaConfig, "chooses by buffer level and utility (BOLA, Spiteri et al. 2016, in the form of dash.js)";
    Festive = "festive", festive::FestiveConfig, "changes tracks rarely and gradually, by the harmonic mean of 20 chunks (FESTIVE, Jiang et al. 2012)";
    Dynamic = "dynamic", dynamic::DynamicConfig, "chooses as rate while the buffer is short, as bola once it is long (dash.js's DYNAMIC)";
    FastMpc = "fast-mpc", fast_mpc::FastMpcConfig, "plans 5 chunks at the harmonic mean throughput of the last 5 (Yin et al. 2015)";
    RobustMpc = "robust-mpc", robust_mpc::RobustMpcConfig, "plans as fast-mpc, with the estimate discounted by its largest recent error (Yin et al. 2015)";
    MpcD = "mpc-d", mpc_d::MpcDConfig, "is robust-mpc under the name that T3P compares with (MPC-D)";
    MpcL = "mpc-l", mpc_l::MpcLConfig, "plans with the rates that a model predicts (T3P's MPC-L)";
    MpcO = "mpc-o", mpc_o::MpcOConfig, "plans with the true rates, an upper reference (T3P's MPC-O)";
}

/// State of the player that a controller gets when it chooses a track.
#[derive(Debug, Clone, Copy)]
pub struct View<'v> {
    /// Film that is played.
    pub film: &'v Film,
    /// Quality of experience to maximize.
    pub qoe: &'v Qoe,
    /// Number of the chunk whose track is to be chosen.
    pub chunk: usize,
    /// Track of the chunk before this one; `None` before the first chunk.
    pub last_track: Option<usize>,
    /// Playback time in the buffer, in seconds.
    pub buffer_s: f64,
    /// Seconds since the session's start.
    pub now_s: f64,
    /// Buffer level in seconds above which the player waits.
    pub cap_s: f64,
    /// Forecast of the rate, if there is one.
    pub forecast: Option<&'v dyn RateForecast>,
}

/// Decision of a controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Track to request, counted from 0.
    pub track: usize,
    /// Estimated throughput in bit/s, if the controller makes an estimate.
    pub estimate_bps: Option<f64>,
    /// Wait in seconds before the request.
    pub wait_s: f64,
}

impl Choice {
    const fn at_once(track: usize, estimate_bps: Option<f64>) -> Self {
        Self { track, estimate_bps, wait_s: 0.0 }
    }
}

/// Chunk that has arrived, in the form that controllers get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrivedChunk {
    /// Number of the chunk, counted from 0.
    pub chunk: usize,
    /// Track of the chunk, counted from 0.
    pub track: usize,
    /// Size of the chunk in bytes.
    pub bytes: f64,
    /// Seconds from the request until the chunk was complete.
    pub took_s: f64,
    /// Seconds that the player waited before the request because its buffer was full.
    pub waited_s: f64,
}

impl ArrivedChunk {
    /// Throughput of the transfer, in bit/s.
    pub fn bps(&self) -> f64 {
        self.bytes * 8.0 / self.took_s
    }
}

/// Rate controller of a player. `tests/video/conformance.rs` tests every row of the table.
pub trait Controller: fmt::Debug + Send {
    /// Choose the next chunk's track, which must be one of the film's.
    fn choose(&mut self, view: &View<'_>) -> Choice;

    /// Learn from a chunk that has arrived.
    fn on_chunk(&mut self, _chunk: &ArrivedChunk) {}
}

/// Parameters of a controller, as given in files.
pub(crate) trait Parameters {
    /// Create the controller for this film and QoE; its random draws follow from the seed.
    fn controller(&self, film: &Film, qoe: &Qoe, seed: u64) -> Box<dyn Controller>;

    /// Return the first invalid parameter: the key, its value, and the expected range.
    fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        None
    }

    /// Whether the controller needs a forecast of the rate.
    fn looks_ahead(&self) -> bool {
        false
    }
}

/// Entry of a controller in lists.
#[derive(Debug, Clone, Copy)]
pub struct ControllerEntry {
    /// Name by which scenario and study files refer to the controller.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// Constructor with the published parameters.
    pub default: fn() -> ControllerChoice,
}

/// Reasons for which a controller is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ControllerError {
    /// No controller has this name.
    #[error("unknown controller {}{}; expected {expected}", Quoted(name), did_you_mean(name, expected.split(", ")))]
    Unknown {
        /// Name that was given.
        name: String,
        /// Names of the controllers.
        expected: String,
    },
    /// A parameter is out of range.
    #[error("{controller}.{key} is {value}; expected {expected}")]
    Parameter {
        /// Name of the controller.
        controller: &'static str,
        /// Key of the parameter.
        key: &'static str,
        /// Value that was given.
        value: String,
        /// Values that are allowed.
        expected: &'static str,
    },
}

/// Return `None` if the parameter's value is within the range, else the key, the value and the range.
fn within(
    key: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Option<(&'static str, String, &'static str)> {
    (!range.contains(&value)).then(|| (key, value.to_string(), expected))
}
