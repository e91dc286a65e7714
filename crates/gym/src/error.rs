use skyhop_engine::Unsupported;
use skyhop_units::did_you_mean;

/// Reason for which an episode cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum GymError {
    /// No flow of the experiment has the congestion control `policy`.
    #[error(
        "no flow of the scenario has an agent: give a [[flow]] cc = \"policy\", without a card"
    )]
    NoAgent,
    /// No reward function has this name.
    #[error("there is no reward `{name}`{}; expected {known}", did_you_mean(name, known.split(", ")))]
    UnknownReward {
        /// Name that was asked for.
        name: String,
        /// Names of all reward functions, separated by commas.
        known: String,
    },
    /// The simulator does not support the experiment.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}
