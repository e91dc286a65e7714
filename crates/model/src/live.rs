//! What live runs are asked for.

words! {
    /// What carries packets between the kernel and the link.
    #[derive(Default)]
    LiveDevice ["device of live runs"] {
        /// TUN devices where /dev/net/tun may be opened, else packet sockets.
        #[default]
        Auto = "auto",
        /// TUN devices.
        Tun = "tun",
        /// A veth pair and packet sockets for each end.
        Packet = "packet",
    }
}

words! {
    /// What carries packets between the two ends of a guest's run.
    #[derive(Default)]
    LinuxLink ["link of guests"] {
        /// Linux's own disciplines where they do the same as the scenario's links, else skyhop's.
        #[default]
        Auto = "auto",
        /// Skyhop's links.
        Skyhop = "skyhop",
        /// Linux's own disciplines.
        Tc = "tc",
    }
}
