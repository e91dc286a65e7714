//! Options of live runs and of runs in a guest.

words! {
    /// Device between the kernel and the links of a live run.
    #[derive(Default)]
    LiveDevice ["device of live runs"] {
        /// TUN devices if /dev/net/tun can be opened, else packet sockets.
        #[default]
        Auto = "auto",
        /// TUN devices, one for each end.
        Tun = "tun",
        /// Packet sockets on a veth pair for each end.
        Packet = "packet",
    }
}

words! {
    /// Implementation of the links in a guest's run.
    #[derive(Default)]
    LinuxLink ["link of guests"] {
        /// Linux's own queue disciplines if they can do the same as the scenario's links, else skyhop's links.
        #[default]
        Auto = "auto",
        /// Links of skyhop, as in other live runs.
        Skyhop = "skyhop",
        /// Queue disciplines of Linux.
        Tc = "tc",
    }
}
