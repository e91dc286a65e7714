//! Options of paths and links.

words! {
    /// Topology by which the ends of a path are connected.
    #[derive(Default)]
    Relay ["relay"] {
        /// Path over inter-satellite links.
        Isl = "isl",
        /// Bent pipes: from satellite to gateway to satellite.
        #[default]
        BentPipe = "bent-pipe",
        /// Access network: one satellite, a gateway, and fibre.
        Access = "access",
        /// Access network with the waits, losses and holes of an access profile.
        Starlink = "starlink",
        /// Geostationary satellite, one hop.
        Geo = "geo",
    }
}

impl Relay {
    /// Whether paths of this topology pass gateways.
    pub const fn uses_gateways(self) -> bool {
        matches!(self, Self::BentPipe | Self::Access | Self::Starlink)
    }

    /// Whether paths of this topology have a terminal at one end only.
    pub const fn is_access(self) -> bool {
        matches!(self, Self::Access | Self::Starlink)
    }
}

words! {
    /// Tool whose Earth model, speed of light, coverage and delays are used instead of skyhop's.
    #[derive(Default)]
    Compat ["compatibility mode"] {
        /// None: WGS84, the true speed of light, minimum elevation, true distances.
        #[default]
        None = "none",
        /// LeoEM, an emulator of LEO networks.
        Leoem = "leoem",
        /// Hypatia, a framework for LEO networks.
        Hypatia = "hypatia",
    }
}

words! {
    /// Rule for inter-satellite links between the shells of a constellation.
    #[derive(Default)]
    ShellLinks ["rule for links between shells"] {
        /// Shells without links to each other.
        #[default]
        Apart = "apart",
        /// Links from each satellite to the nearest one of the next shell.
        Nearest = "nearest",
    }
}

impl ShellLinks {
    /// Whether shells have no links to each other.
    pub const fn is_apart(&self) -> bool {
        matches!(self, Self::Apart)
    }
}

words! {
    /// Fate of packets that reach an outage.
    #[derive(Default)]
    DuringOutage ["word for what an outage does"] {
        /// Packets that reach the outage are lost.
        #[default]
        Drop = "drop",
        /// Packets wait: the queue stops serving until the outage ends.
        Hold = "hold",
    }
}
