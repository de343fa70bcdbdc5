"""A right kernel in tensor operations, with every feature of attention, and planted bugs.

It works in tiles of 16 keys, in float32, and rounds P and the gradient of scores to the operands'
dtype before a product, as kernels do.
"""

from types import SimpleNamespace

import torch

TILE = 16
INF = float("inf")


def tanh_of_exp(x):
    """Return tanh as kernels without the instruction compute it. It loses digits near 0."""
    return 1 - 2 / (1 + torch.exp(2 * x))


def tanh_approx(x):
    """Return tanh with a relative error of up to 2^-11, the same for equal x, as tanh.approx."""
    t = torch.tanh(x)
    bits = (t.view(torch.int32) * 1103515245 + 12345) >> 8 & 0xFF
    return t * (1 + (bits.float() / 127.5 - 1) * 2.0**-11)


def kernel(q, k, v, variant, dout=None, dlse=None, *, tanh=torch.tanh, sink="first", bug=""):
    """Return out, lse, dq, dk, dv[, dbias][, dsink] in the shapes of oracle.attention.

    sink: "first" if the running maximum starts at the sink, "last" if the sink joins at the end.
    """
    run = Run(q, k, v, variant, tanh, sink, bug)
    out, lse = run.forward()
    got = SimpleNamespace(out=out, lse=lse)
    if dout is not None or dlse is not None:
        dout = torch.zeros_like(out) if dout is None else dout
        vars(got).update(run.backward(dout, out, lse, dlse))
    return got


class Run:
    def __init__(self, q, k, v, variant, tanh, sink, bug):
        self.dtype, self.tanh, self.sink_at, self.bug = q.dtype, tanh, sink, bug
        self.group = q.shape[2] // k.shape[2]
        self.q, self.k, self.v = (x.transpose(1, 2).float() for x in (q, k, v))
        self.k, self.v = (x.repeat_interleave(self.group, 1) for x in (self.k, self.v))
        self.scale, self.cap, self.bias = variant.scale(q.shape[3]), variant.softcap, variant.bias
        self.sinks = None if variant.sinks is None else variant.sinks.float()[:, None, None]
        self.seen = variant.mask.visible(q.shape[1], k.shape[1])
        self.tiles = [slice(j, j + TILE) for j in range(0, k.shape[1], TILE)]

    def scores(self, keys):
        """Return S and the slope of the softcap."""
        s, slope = self.scale * (self.q @ self.k[:, :, keys].mT), 1.0
        if self.cap is not None and self.bug != "no softcap":
            t = self.tanh(s / self.cap)
            s, slope = self.cap * t, 1 - t * t
        if self.bias is not None:
            s = s + self.bias[..., keys].float()
        return s.masked_fill(~self.seen[:, keys], -INF), slope

    def forward(self):
        shape = (*self.q.shape[:3], 1)
        m = torch.full(shape, -INF)
        l, acc = torch.zeros(shape), torch.zeros(*shape[:3], self.v.shape[3])
        if self.sinks is not None and self.sink_at == "first" and self.bug != "no sink":
            m = m.maximum(self.sinks)
            l = l + (m > -INF)
        for keys in self.tiles:
            s, _ = self.scores(keys)
            higher = torch.maximum(m, s.amax(-1, keepdim=True))
            safe = higher.masked_fill(higher == -INF, 0.0)
            p, shrink = torch.exp(s - safe), torch.exp(m - safe)
            l = shrink * l + p.sum(-1, keepdim=True)
            acc = shrink * acc + self.cast(p) @ self.v[:, :, keys]
            m = higher
        if self.sinks is not None and (self.sink_at == "last" or self.bug == "sink twice") and self.bug != "no sink":
            higher = torch.maximum(m, self.sinks)
            safe = higher.masked_fill(higher == -INF, 0.0)
            shrink = torch.exp(m - safe)
            l, acc, m = shrink * l + torch.exp(self.sinks - safe), shrink * acc, higher
        out = torch.where(l == 0, 0.0, acc / l)
        return out.to(self.dtype).transpose(1, 2), (m + torch.log(l)).squeeze(-1)

    def backward(self, dout, out, lse, dlse):
        dout, out = (x.transpose(1, 2).float() for x in (dout, out))
        delta = (dout * out).sum(-1, keepdim=True)
        if dlse is not None and self.bug != "no dlse":
            delta = delta - dlse.unsqueeze(-1)
        lse = lse.unsqueeze(-1)
        safe = lse.masked_fill(lse == -INF, INF)
        dq, dk, dv = (torch.zeros_like(x) for x in (self.q, self.k, self.v))
        dbias = None if self.bias is None else torch.zeros_like(self.bias, dtype=torch.float32)
        for keys in self.tiles:
            s, slope = self.scores(keys)
            p = torch.exp(s - safe)
            dv[:, :, keys] = self.cast(p).mT @ dout
            t = p * (dout @ self.v[:, :, keys].mT - delta)
            if dbias is not None:
                dbias[..., keys] = t.sum_to_size(dbias[..., keys].shape)
            u = self.cast(t if self.bug == "no slope" else t * slope)
            dq += u @ self.k[:, :, keys]
            dk[:, :, keys] = u.mT @ self.q

        def stored(x):
            x = x if self.group == 1 or x is dq else x.unflatten(1, (-1, self.group)).sum(2)
            return x.to(self.dtype).transpose(1, 2)

        dq, dk = dq * self.scale, dk * self.scale
        gradients = {"dq": stored(dq), "dk": stored(dk), "dv": stored(dv)}
        if dbias is not None:
            gradients["dbias"] = dbias.to(self.bias.dtype)
        if self.sinks is not None:
            weight = torch.exp(self.sinks - safe.masked_fill(safe == INF, 0.0))
            if self.bug == "dsink without delta":
                delta = torch.ones_like(delta)
            gradients["dsink"] = -(weight * delta).sum((0, 2, 3))
        return gradients

    def cast(self, x):
        return x.to(self.dtype).float()
