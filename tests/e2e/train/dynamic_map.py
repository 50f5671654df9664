"""Prints codegen/kernels/common/dynamic_map.h.

    python3 dynamic_map.py > dynamic_map.h      (needs torch)
"""
import numpy as np
import torch


def own(signed):
    out=[]
    for i in range(7):
        n = (2**i if signed else 2**(i+1)) + 1
        b = torch.linspace(0.1, 1, n, dtype=torch.float32)
        m = (b[:-1]+b[1:])/2.0
        out += ((10**(-6+i))*m).tolist()
        if signed: out += (-(10**(-6+i))*m).tolist()
    out += [0, 1.0]
    out.sort()
    return torch.tensor(out).tolist()
def text(v):

    lines, line = [], ''
    for x in v:
        f=np.float32(x)
        for d in range(1,10):
            s='%.*g'%(d,float(f))
            if np.float32(float(s))==f: break
        if '.' not in s and 'e' not in s: s+='.'
        s+='f, '
        if len(line)+len(s)>92: lines.append(line.rstrip()); line=''
        line+=s
    lines.append(line.rstrip().rstrip(','))
    return ' \\\n'.join('        '+l for l in lines)
print('''\
/* dynamic_map.h: the 256 values that a state of an 8-bit optimiser can have, relative to the
 * largest of its block (Dettmers et al., ICLR 2022): seven decades, each with as many steps as all
 * below it, 0 and 1.  Signed for moments, unsigned for squares.  For CUDA and for C;
 * tests/e2e/train/dynamic_map.py prints the lists. */
#ifndef TGC_DYNAMIC_MAP_H
#define TGC_DYNAMIC_MAP_H

/* clang-format off */''')
for n,s in (('SIGNED',True),('UNSIGNED',False)):
    print(f'#define DYNAMIC_{n} \\\n'+text(own(s))+'\n')
print('/* clang-format on */\n\n#endif')
