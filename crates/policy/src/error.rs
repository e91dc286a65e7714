/// What is wrong with a policy: one line, without the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The card is no TOML, or has another key or value than expected.
    #[error("{what}")]
    Card {
        /// Which key, and what was expected.
        what: String,
    },
    /// The network is no ONNX, holds an operator that is not known, or has other inputs and outputs than the card says.
    #[error("{what}")]
    Network {
        /// What is wrong with it.
        what: String,
    },
}

impl PolicyError {
    pub(crate) fn card(what: impl Into<String>) -> Self {
        Self::Card { what: what.into() }
    }

    pub(crate) fn network(what: impl Into<String>) -> Self {
        Self::Network { what: what.into() }
    }
}
