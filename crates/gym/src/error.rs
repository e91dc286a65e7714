use skyhop_engine::Unsupported;

/// Why there is no episode.
#[derive(Debug, thiserror::Error)]
pub enum GymError {
    /// Nobody decides for any of its flows.
    #[error(
        "nobody has anything to decide: give a [[flow]] of the scenario cc = \"policy\", without a card"
    )]
    NoAgent,
    /// There is no reward of this name.
    #[error("there is no reward `{name}`; expected {known}")]
    UnknownReward {
        /// What was asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The simulator does not run it.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}
