//! What a path is asked for.

words! {
    /// How the ends are joined.
    #[derive(Default)]
    Relay ["relay"] {
        /// Over links between satellites.
        Isl = "isl",
        /// From satellite to gateway to satellite.
        #[default]
        BentPipe = "bent-pipe",
        /// One satellite, a gateway, and fibre.
        Access = "access",
        /// A geostationary satellite.
        Geo = "geo",
    }
}

impl Relay {
    /// Whether paths of this kind pass gateways.
    pub const fn uses_gateways(self) -> bool {
        matches!(self, Self::BentPipe | Self::Access)
    }
}

words! {
    /// Another tool's habits: its Earth, speed of light, coverage, delays.
    #[derive(Default)]
    Compat ["compatibility mode"] {
        /// None: WGS84, the true speed of light, minimum elevation, true distances.
        #[default]
        None = "none",
        /// Those of the LeoEM emulator.
        Leoem = "leoem",
        /// Those of the Hypatia framework.
        Hypatia = "hypatia",
    }
}

words! {
    /// What becomes of packets that reach an outage.
    #[derive(Default)]
    DuringOutage ["word for what an outage does"] {
        /// They are lost.
        #[default]
        Drop = "drop",
        /// The queue stops serving until the outage ends.
        Hold = "hold",
    }
}
