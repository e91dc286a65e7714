//! Test utilities: connections over the loopback device, and namespaces.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use skyhop_kernel::KernelError;

/// Unwrap the result; `None`, with a recorded skip, if this machine cannot load modules.
pub fn unless_impossible<T: Debug>(result: Result<T, KernelError>) -> Option<T> {
    match result.as_ref().err().and_then(KernelError::missing) {
        Some(need) => {
            skyhop_needs::missing(need, result.unwrap_err());
            None
        }
        None => Some(result.unwrap()),
    }
}

/// Run `work` on a thread in its own mount namespace, whose BPF file system disappears at its end with all pins.
pub fn in_own_mounts(work: impl FnOnce() + Send) {
    let alone_with_mounts = || {
        let none: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        let separated = unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(none, "/", none, private, none))
            .and_then(|()| mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), none));
        match separated {
            Ok(()) => work(),
            Err(error) => skyhop_needs::missing("namespaces", format!("no own mounts: {error}")),
        }
    };
    on_own_thread(alone_with_mounts);
}

/// Run `work` on a thread in its own network namespace, whose loopback device is up.
pub fn in_own_network(work: impl FnOnce() + Send) {
    let alone_with_network = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may create network namespaces");
        raise_loopback().expect("the loopback device can be raised");
        work();
    };
    on_own_thread(alone_with_network);
}

/// Run `work` on a thread with the test's name, under which skips are recorded.
fn on_own_thread(work: impl FnOnce() + Send) {
    let test = thread::current().name().unwrap_or_default().to_owned();
    thread::scope(|scope| {
        let own = thread::Builder::new().name(test).spawn_scoped(scope, work);
        own.expect("a thread can be started").join().unwrap();
    });
}

/// Bring up the loopback device, by the ioctl of netdevice(7).
fn raise_loopback() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all of its fields are numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads the request, which lives for the call.
    let raised = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    Errno::result(raised).map(|_| ()).map_err(io::Error::from)
}

/// Connection with both of its sockets.
pub struct Connection {
    stream: TcpStream,
    peer: TcpStream,
}

impl Connection {
    /// Open a connection over the loopback device with this congestion control.
    pub fn open(cc: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (peer, _) = listener.accept()?;
        choose(&stream, cc)?;
        Ok(Self { stream, peer })
    }

    /// Socket that the sender writes to.
    pub fn writer(&self) -> &TcpStream {
        &self.stream
    }

    /// Read and discard all data until the sender has finished.
    pub fn discard(&self) {
        let mut chunk = vec![0; 1 << 16];
        while matches!((&self.peer).read(&mut chunk), Ok(length) if length > 0) {}
    }

    /// Shut down the sending side.
    pub fn finish(&self) {
        self.stream.shutdown(Shutdown::Write).expect("the connection is open");
    }

    /// Sender's congestion window now, in packets (tcp(7), `TCP_INFO`).
    pub fn cwnd(&self) -> io::Result<u32> {
        // SAFETY: all of its fields are numbers, for which zero is a value.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut size = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the kernel writes at most `size` bytes, the size of `info`.
        let got = unsafe {
            libc::getsockopt(
                self.stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut size,
            )
        };
        Errno::result(got).map(|_| info.tcpi_snd_cwnd).map_err(io::Error::from)
    }

    /// Send `bytes` bytes; return the number that arrived.
    pub fn send(&self, bytes: usize) -> io::Result<usize> {
        let mut peer = self.peer.try_clone()?;
        let receiver = thread::spawn(move || {
            let mut chunk = vec![0; 1 << 16];
            let mut received = 0;
            while received < bytes {
                match peer.read(&mut chunk)? {
                    0 => break,
                    length => received += length,
                }
            }
            Ok(received)
        });
        (&self.stream).write_all(&vec![0; bytes])?;
        receiver.join().unwrap()
    }
}

fn choose(stream: &TcpStream, cc: &str) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the name has, which lives for the call.
    let chosen = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            cc.as_ptr().cast(),
            cc.len() as libc::socklen_t,
        )
    };
    Errno::result(chosen).map(|_| ()).map_err(io::Error::from)
}

/// Send `bytes` bytes over a new connection; return the number that arrived.
pub fn send_over_loopback(cc: &str, bytes: usize) -> io::Result<usize> {
    Connection::open(cc)?.send(bytes)
}
