/* A DNS server that costs next to nothing: turns each query for port 53 round in the driver, as its own answer.
 *
 * Built for the kernel by `clang -target bpf`. Addresses and ports change places, which leaves the checksums as they
 * are; the bit that says "response" is set, and the UDP checksum mended for it (RFC 1624).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#define SECTION(name) __attribute__((section(name), used))
#define DNS_PORT __builtin_bswap16(53)

struct dns {
    __u16 id;
    __u16 flags;
};

SECTION("xdp")
int echo(struct xdp_md *context) {
    void *end = (void *)(long)context->data_end;
    struct ethhdr *ethernet = (void *)(long)context->data;
    struct iphdr *ip = (void *)(ethernet + 1);
    struct udphdr *udp = (void *)(ip + 1);
    struct dns *dns = (void *)(udp + 1);
    unsigned char hardware;
    __u32 address, sum;
    __u16 port, response = __builtin_bswap16(0x8000);

    if ((void *)(dns + 1) > end || ethernet->h_proto != __builtin_bswap16(ETH_P_IP) || ip->ihl != 5 ||
        ip->protocol != IPPROTO_UDP || udp->dest != DNS_PORT || dns->flags & response)
        return XDP_PASS;
    for (int i = 0; i < ETH_ALEN; i++) {
        hardware = ethernet->h_dest[i];
        ethernet->h_dest[i] = ethernet->h_source[i];
        ethernet->h_source[i] = hardware;
    }
    address = ip->daddr;
    ip->daddr = ip->saddr;
    ip->saddr = address;
    port = udp->dest;
    udp->dest = udp->source;
    udp->source = port;
    sum = (__u16)~udp->check + (__u16)~dns->flags;
    dns->flags |= response;
    sum += dns->flags;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    udp->check = (__u16)~sum;
    return XDP_TX;
}

/* What the other end of a veth pair needs so that it takes what is sent from here. */
SECTION("xdp/pass")
int pass(struct xdp_md *context) {
    (void)context;
    return XDP_PASS;
}

char terms[] SECTION("license") = "Dual MIT/GPL";
