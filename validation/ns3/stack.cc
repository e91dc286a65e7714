// Speed of ns-3 with its whole stack: packets over three links in a row, of 100 Mbit/s and 5 ms each, for 20 s.
//
//   stack udp|tcp
//
// "udp" sends packets of 1500 B every 200 us, which the other end returns; "tcp" is one transfer. The line of output:
// "run CPU_S ARRIVALS_AT_NODES".

#include <cstdio>
#include <ctime>
#include <string>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

namespace {

constexpr uint16_t PORT = 9;
uint64_t arrivals = 0;

void count(Ptr<const Packet>, Ptr<Ipv4>, uint32_t) { ++arrivals; }

// Join the nodes, and return the address of the last one.
Ipv4Address join(const NodeContainer& nodes) {
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("100Mbps"));
    link.SetChannelAttribute("Delay", StringValue("5ms"));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4Address last;
    for (uint32_t node = 0; node + 1 < nodes.GetN(); ++node) {
        last = addresses.Assign(link.Install(nodes.Get(node), nodes.Get(node + 1))).GetAddress(1);
        addresses.NewNetwork();
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    return last;
}

void add_udp(const NodeContainer& nodes, Ipv4Address server) {
    UdpEchoServerHelper(PORT).Install(nodes.Get(nodes.GetN() - 1)).Start(Seconds(0));
    UdpEchoClientHelper client(server, PORT);
    client.SetAttribute("MaxPackets", UintegerValue(100'000));
    client.SetAttribute("Interval", TimeValue(MicroSeconds(200)));
    client.SetAttribute("PacketSize", UintegerValue(1472));
    client.Install(nodes.Get(0)).Start(Seconds(0));
}

void add_tcp(const NodeContainer& nodes, Ipv4Address server) {
    const std::string protocol = "ns3::TcpSocketFactory";
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    PacketSinkHelper sink(protocol, InetSocketAddress(Ipv4Address::GetAny(), PORT));
    sink.Install(nodes.Get(nodes.GetN() - 1)).Start(Seconds(0));
    BulkSendHelper(protocol, InetSocketAddress(server, PORT)).Install(nodes.Get(0)).Start(Seconds(0));
}

}  // namespace

int main(int count_of_arguments, char** arguments) {
    if (count_of_arguments != 2) return 2;
    NodeContainer nodes;
    nodes.Create(4);
    InternetStackHelper().Install(nodes);
    const Ipv4Address server = join(nodes);
    std::string(arguments[1]) == "udp" ? add_udp(nodes, server) : add_tcp(nodes, server);
    Config::ConnectWithoutContext("/NodeList/*/$ns3::Ipv4L3Protocol/Rx", MakeCallback(&count));
    Simulator::Stop(Seconds(20));
    const std::clock_t begin = std::clock();
    Simulator::Run();
    const double cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    std::printf("run %.6f %llu\n", cpu_s, static_cast<unsigned long long>(arrivals));
    return 0;
}
