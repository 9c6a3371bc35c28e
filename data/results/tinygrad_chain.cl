// Written by tinygrad 0.14.0 for three steps on 100,352 floats; recorded on 2026-11-27 on an AMD EPYC, Intel's OpenCL (lesson 06b).
__kernel void E_784_32_4(__global float* data0_100352, __global float* data1_100352) {
  int gidx0 = get_group_id(0); /* 784 */
  int lidx0 = get_local_id(0); /* 32 */
  int alu0 = ((gidx0<<7)+(lidx0<<2));
  float4 val0 = (*((__global float4*)((data1_100352+alu0))));
  float alu1 = ((val0.x+1.0f)*0.5f);
  float alu2 = ((val0.y+1.0f)*0.5f);
  float alu3 = ((val0.z+1.0f)*0.5f);
  float alu4 = ((val0.w+1.0f)*0.5f);
  float alu5 = ((0.0f<alu1)?alu1:0.0f);
  float alu6 = ((0.0f<alu2)?alu2:0.0f);
  float alu7 = ((0.0f<alu3)?alu3:0.0f);
  float alu8 = ((0.0f<alu4)?alu4:0.0f);
  *((__global float4*)((data0_100352+alu0))) = (float4)(alu5,alu6,alu7,alu8);
}
